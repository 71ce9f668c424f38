#!lua flags=allow-oom
-- resume: opens a destination's gate, whatever closed it.
--
-- redis-cli --eval resume.lua '{redispatch:pager}:gate' '{redispatch:pager}:stream' '{redispatch:pager}:retry'
-- KEYS  1 gate, 2 stream, 3 retry, all of one destination
-- ARGV  none
-- Returns { the gate's state before or "", its reason, since when in ms or 0, deliveries that wait, what it is now in
--       words }
local USAGE = "resume.lua 'D:gate' 'D:stream' 'D:retry'"
local gate, stream, retry = KEYS[1], KEYS[2], KEYS[3]
local tag = string.match(gate or '', '^({.+}:)gate$')
if not tag or stream ~= tag .. 'stream' or retry ~= tag .. 'retry' or #ARGV > 0 then
  local usage = string.gsub(USAGE, 'D:', string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:')
  return redis.error_reply('ERR these are not the keys or arguments - usage: redis-cli --eval ' .. usage)
end
local before = redis.call('HMGET', gate, 'state', 'reason', 'opened_at')
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
redis.call('DEL', gate)
return { before[1] or '', before[2] or '', tonumber(before[3] or 0), depth,
  'it is open; ' .. depth .. ' wait' }
