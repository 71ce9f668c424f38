#!lua flags=allow-oom
-- accept: books an understood difference of the ledger, what is missing as lost, missing dead letters as discarded.
--
-- redis-cli --eval accept.lua '{redispatch:pager}:stream' '{redispatch:pager}:retry' '{redispatch:pager}:dead' \
--   '{redispatch:pager}:ledger' , [lost discarded]
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger, all of one destination
-- ARGV  1 and 2, or none: what it is understood to be; when it is something else by now, nothing is booked
-- Returns { deliveries for lost, dead letters for discarded, 1 booked or 0, the same in words }; negative when there
--       were too many
local USAGE = "accept.lua 'D:stream' 'D:retry' 'D:dead' 'D:ledger' , [lost discarded]"
local stream, retry, dead, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tag = string.match(stream or '', '^({.+}:)stream$')
if not tag or retry ~= tag .. 'retry' or dead ~= tag .. 'dead' or ledger ~= tag .. 'ledger' or #ARGV % 2 == 1 then
  local usage = string.gsub(USAGE, 'D:', string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:')
  return redis.error_reply('ERR these are not the keys or arguments - usage: redis-cli --eval ' .. usage)
end
local names = { 'accepted', 'replayed', 'delivered', 'duplicate', 'superseded', 'died', 'lost', 'discarded' }
local values, l = redis.call('HMGET', ledger, unpack(names)), {}
for i, name in ipairs(names) do l[name] = tonumber(values[i] or 0) end
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
local lost = l.accepted + l.replayed - l.delivered - l.duplicate - l.superseded - l.died - l.lost - depth
local discarded = l.died - l.replayed - l.discarded - redis.call('XLEN', dead)
local told = string.format('%.0f as lost, %.0f as discarded', lost, discarded)
if #ARGV > 0 and (tonumber(ARGV[1]) ~= lost or tonumber(ARGV[2]) ~= discarded) then
  return { lost, discarded, 0, 'nothing was booked: ' .. told }
end
if lost ~= 0 then redis.call('HINCRBY', ledger, 'lost', lost) end
if discarded ~= 0 then redis.call('HINCRBY', ledger, 'discarded', discarded) end
return { lost, discarded, 1, 'booked ' .. told }
