#!lua flags=allow-oom
-- snapshot: a destination at one instant; never longer work because more is waiting.
--
-- KEYS  1 stream, 2 retry, 3 dead, 4 gate, 5 ledger
-- ARGV  1 group
-- Returns { now in ms, length of stream, of retry, of dead, pending, consumers, groups on the stream,
--           id of the oldest entry or "", due time in ms of the first retry or -1, gate as { field, value, ... }, ledger as { field, value, ... } }
local stream, retry, dead, gate, ledger, group = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1]
local time = redis.call('TIME')
local pending, consumers, groups = 0, 0, 0
if redis.call('EXISTS', stream) == 1 then
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for i = 1, #flat, 2 do info[flat[i]] = flat[i + 1] end
    groups = groups + 1
    if info.name == group then pending, consumers = info.pending, info.consumers end
  end
end
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local first = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')
return { time[1] * 1000 + math.floor(time[2] / 1000), redis.call('XLEN', stream), redis.call('ZCARD', retry),
  redis.call('XLEN', dead), pending, consumers, groups, oldest and oldest[1] or '', first[2] and tonumber(first[2]) or -1,
  redis.call('HGETALL', gate), redis.call('HGETALL', ledger) }
