#!lua flags=allow-oom
-- pause: closes a destination's gate for the whole fleet. Nothing is sent until resume; max_age still counts.
-- A gate that is `gone` stays so: it, too, waits for resume.
--
-- redis-cli --eval pause.lua '{redispatch:pager}:gate' '{redispatch:pager}:stream' '{redispatch:pager}:retry' \
--   , [reason]
-- KEYS  1 gate, 2 stream, 3 retry, all of one destination
-- ARGV  1 why, for people; "" or none keeps what a paused gate says
-- Returns { the gate's state before or "", its reason then, deliveries that wait, since when it is closed in ms,
--       what it is now in words }
local USAGE = "pause.lua 'D:gate' 'D:stream' 'D:retry' , ['why, in quotes']"
local gate, stream, retry, reason = KEYS[1], KEYS[2], KEYS[3], ARGV[1] or ''
local tag = string.match(gate or '', '^({.+}:)gate$')
if not tag or stream ~= tag .. 'stream' or retry ~= tag .. 'retry' or #ARGV > 1 then
  local usage = string.gsub(USAGE, 'D:', string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:')
  return redis.error_reply('ERR these are not the keys or arguments - usage: redis-cli --eval ' .. usage)
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local before, why = unpack(redis.call('HMGET', gate, 'state', 'reason'))
before, why = before or '', why or ''
if before ~= 'paused' and before ~= 'gone' then
  redis.call('DEL', gate)
  redis.call('HSET', gate, 'state', 'paused', 'reason', reason, 'opened_at', now)
elseif before == 'paused' and reason ~= '' then
  redis.call('HSET', gate, 'reason', reason)
end
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
local now_is = (before == 'gone' and 'it stays gone' or 'it is paused') .. ', until resume; ' .. depth .. ' wait'
return { before, why, depth, tonumber(redis.call('HGET', gate, 'opened_at') or now), now_is }
