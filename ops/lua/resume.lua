#!lua flags=allow-oom
-- resume: opens a destination's gate, whatever closed it.
--
-- redis-cli --eval resume.lua '{redispatch:pager}:gate' '{redispatch:pager}:stream' '{redispatch:pager}:retry'
-- KEYS  1 gate, 2 stream, 3 retry, all of one destination
-- ARGV  none
-- Returns { the gate's state before or "", its reason, since when in ms or 0, deliveries that wait }
local gate, stream, retry = KEYS[1], KEYS[2], KEYS[3]
local tag = string.match(gate or '', '^(.*:)gate$')
if not tag or stream ~= tag .. 'stream' or retry ~= tag .. 'retry' then
  return redis.error_reply('ERR usage: gate stream retry')
end
local before = redis.call('HMGET', gate, 'state', 'reason', 'opened_at')
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
redis.call('DEL', gate)
return { before[1] or '', before[2] or '', tonumber(before[3] or 0), depth }
