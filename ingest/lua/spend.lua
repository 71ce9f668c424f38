#!lua
-- spend: takes what requests are about to send from what their senders may send, all or nothing for each.
-- One call for all requests that arrived while the last one was under way. Refused at maxmemory.
--
-- KEYS  those of kind allowance, each once
-- ARGV  alerts per second for each key, then for each request: index in KEYS, alerts
-- Returns for each request ms to wait before it is sent again; 0: it is paid for
--
-- A bucket holds one second's worth, or one alert. A request of more than that goes when the bucket is full,
-- and leaves a debt; so a large batch gets through, and the rate holds in the long run.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local per_second, full, tokens, told = {}, {}, {}, {}
for i = 1, #KEYS do
  local allowance = KEYS[i]
  local known = redis.call('HMGET', allowance, 'tokens', 'at')
  per_second[i] = tonumber(ARGV[i])
  full[i] = math.max(1, per_second[i])
  local since = math.max(0, now - (tonumber(known[2] or nil) or 0))
  tokens[i] = math.min(full[i], (tonumber(known[1] or nil) or full[i]) + since * per_second[i] / 1000)
end
for n = #KEYS + 1, #ARGV, 2 do
  local i, alerts = tonumber(ARGV[n]), tonumber(ARGV[n + 1])
  local lacking = math.min(alerts, full[i]) - tokens[i]
  if lacking < 0.000001 then
    tokens[i] = tokens[i] - alerts
    table.insert(told, 0)
  else
    table.insert(told, math.ceil(lacking / per_second[i] * 1000))
  end
end
for i = 1, #KEYS do
  local allowance = KEYS[i]
  local refilled = (full[i] - tokens[i]) / per_second[i] * 1000
  redis.call('HSET', allowance, 'tokens', string.format('%.6f', tokens[i]), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', allowance, string.format('%.0f', refilled + 1000))
end
return told
