#!lua flags=allow-oom
-- reserve: one request of those that the fleet may make, for destinations whose requests carry several deliveries.
-- Without a rate it just looks at the gate.
--
-- KEYS  1 gate, 2 rate
-- ARGV  1 requests per second or ""
-- Returns { gate's state or "", ms to wait before the request }
-- Behind a closed gate nothing is reserved.
local gate, rate, per_second = KEYS[1], KEYS[2], tonumber(ARGV[1])
local state = redis.call('HGET', gate, 'state')
if state or not per_second then return { state or '', 0 } end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', rate, 'tokens', 'at')
local full = math.max(1, per_second)
local since = math.max(0, now - (tonumber(known[2] or nil) or 0))
local tokens = math.min(full, (tonumber(known[1] or nil) or full) + since * per_second / 1000) - 1
redis.call('HSET', rate, 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
return { '', math.max(0, math.ceil(-tokens / per_second * 1000)) }
