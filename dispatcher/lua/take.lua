#!lua flags=allow-oom
-- take: looks at the gate and moves what is due from `retry` to the stream; the read follows in the same pipeline.
--
-- KEYS  1 stream, 2 retry, 3 gate
-- ARGV  1 how many at most
-- Returns { gate's state or "", now in ms, due time of the next retry in ms or -1, id of the stream's last entry }
-- Behind a closed gate nothing is moved.
local stream, retry, gate, most = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local closed = redis.call('HGET', gate, 'state')
if closed then return { closed, now, -1, '0-0' } end

-- What did not come from settle goes on as it is, to die as malformed; it must not stop the others.
local function fields_of(member)
  local at = string.find(member, ' ', 1, true) or 0
  local sound, fields = pcall(cmsgpack.unpack, string.sub(member, at + 1))
  sound = sound and type(fields) == 'table' and #fields > 0 and #fields % 2 == 0 and #fields < 2000
  for i = 1, sound and #fields or 0 do sound = sound and type(fields[i]) == 'string' end
  return sound and fields or { 'alert', member }
end

local due = redis.call('ZRANGEBYSCORE', retry, '-inf', now, 'LIMIT', 0, most)
for _, member in ipairs(due) do
  redis.call('XADD', stream, '*', unpack(fields_of(member)))
  redis.call('ZREM', retry, member)
end
local first = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')
local tail = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
return { '', now, first[2] and tonumber(first[2]) or -1, tail[1] and tail[1][1] or '0-0' }
