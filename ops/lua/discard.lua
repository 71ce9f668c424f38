#!lua flags=allow-oom
-- discard: removes dead letters for good.
--
-- redis-cli --eval discard.lua '{redispatch:pager}:dead' '{redispatch:pager}:ledger' , id [id ...]
-- KEYS  1 dead, 2 ledger
-- ARGV  the ids of the dead letters
-- Returns how many were removed.
local removed = 0
for _, id in ipairs(ARGV) do removed = removed + redis.call('XDEL', KEYS[1], id) end
if removed > 0 then redis.call('HINCRBY', KEYS[2], 'discarded', removed) end
return removed
