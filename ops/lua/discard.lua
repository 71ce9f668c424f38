#!lua flags=allow-oom
-- discard: removes dead letters for good. All ids are looked up before the first is removed.
--
-- redis-cli --eval discard.lua '{redispatch:pager}:dead' '{redispatch:pager}:ledger' , id [id ...]
-- KEYS  1 dead, 2 ledger, of one destination
-- ARGV  the ids of the dead letters
-- Returns how many were removed.
local dead, ledger = KEYS[1], KEYS[2]
local tag = string.match(dead or '', '^(.*:)dead$')
if not tag or ledger ~= tag .. 'ledger' or #ARGV == 0 then
  return redis.error_reply('ERR usage: dead ledger , id [id ...]')
end
local found = {}
for _, id in ipairs(ARGV) do
  local letter = redis.call('XRANGE', dead, id, id, 'COUNT', 1)[1]
  if letter and letter[1] == id then found[#found + 1] = id end
end
local removed = 0
for _, id in ipairs(found) do removed = removed + redis.call('XDEL', dead, id) end
if removed > 0 then redis.call('HINCRBY', ledger, 'discarded', removed) end
return removed
