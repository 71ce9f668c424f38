#!lua flags=allow-oom
-- accept: books an understood difference of the ledger, what is missing as lost, missing dead letters as discarded.
--
-- redis-cli --eval accept.lua '{redispatch:pager}:stream' '{redispatch:pager}:retry' '{redispatch:pager}:dead' \
--   '{redispatch:pager}:ledger'
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger
-- Returns { deliveries booked as lost, dead letters booked as discarded }; negative when there were too many.
local stream, retry, dead, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local names = { 'accepted', 'replayed', 'delivered', 'duplicate', 'superseded', 'died', 'lost', 'discarded' }
local values, l = redis.call('HMGET', ledger, unpack(names)), {}
for i, name in ipairs(names) do l[name] = tonumber(values[i] or 0) end
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
local lost = l.accepted + l.replayed - l.delivered - l.duplicate - l.superseded - l.died - l.lost - depth
local discarded = l.died - l.replayed - l.discarded - redis.call('XLEN', dead)
if lost ~= 0 then redis.call('HINCRBY', ledger, 'lost', lost) end
if discarded ~= 0 then redis.call('HINCRBY', ledger, 'discarded', discarded) end
return { lost, discarded }
