#!lua
-- append: puts alerts into the streams of their destinations, once per key.
--
-- KEYS  per destination: stream, retry, dead, ledger, objects, then one record per alert of its
-- ARGV  1 number of alerts A, 2 number of destinations D, 3 "1" when a duplicate must write too (fsync),
--       4 number of objects O, 5 number of alerts with a trace T
--       A times: key, content hash, alert; the last O of them refer to an object, and are of one destination each
--       O times the object's name
--       T times: the alert's place in 1..A, its trace
--       D times: max_depth, max_dead, TTL of records in ms, number of alerts N, then N times the alert's place in 1..A
-- Returns one integer per destination and alert, in the order of the records:
--       1 queued, 2 dead letter since the queue is full, 3 no room at all: nothing was stored,
--       4 duplicate, 5 duplicate of a delivery that is a dead letter; plus 10 when the content differs
-- Without allow-oom: at maxmemory it is refused as a whole.
local alerts, destinations, rewrite = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local referring, traced = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local k, a, codes = 1, 6 + 3 * alerts + referring + 2 * traced, {}
local plain, NONE, traces = alerts - referring, {}, {}
for i = a - 2 * traced, a - 1, 2 do traces[tonumber(ARGV[i])] = ARGV[i + 1] end

-- The ledger is short of a delivery exactly when one vanished and nobody has booked it yet. `fresh` is what this
-- call has put into the queue and not yet booked as accepted.
local function book_lost(stream, retry, ledger, fresh)
  local l = redis.call('HMGET', ledger, 'accepted', 'replayed', 'delivered', 'duplicate', 'superseded', 'died', 'lost')
  for i = 1, 7 do l[i] = tonumber(l[i] or 0) end
  local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
  if l[1] + l[2] + fresh > l[3] + l[4] + l[5] + l[6] + l[7] + depth then redis.call('HINCRBY', ledger, 'lost', 1) end
end

for _ = 1, destinations do
  local stream, retry, dead, ledger, objects = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local max_depth, max_dead, ttl, count = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), ARGV[a + 2], tonumber(ARGV[a + 3])
  local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
  local letters = redis.call('XLEN', dead)
  local known_before = count > 0 and redis.call('MGET', unpack(KEYS, k + 5, k + 4 + count)) or {}
  local made = {} -- records that this very call has written
  local accepted, died = 0, 0
  for n = 1, count do
    local nth = tonumber(ARGV[a + 3 + n])
    local record, place = KEYS[k + 4 + n], 3 + 3 * nth
    local key, content, alert = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    local code = nil
    local known = made[record] or known_before[n]
    if known then
      local state, id, rest = string.match(known, '^(%S+) (%S+) (.*)$')
      local was = string.sub(rest, -16)
      local open = state == 'queued' or state == 'in_flight'
      if open and #redis.call('XRANGE', stream, id, id) == 0 then
        book_lost(stream, retry, ledger, accepted - died)
      else
        code = (state == 'dead' and 5 or 4) + (was ~= '----------------' and was ~= content and 10 or 0)
        if rewrite then redis.call('PEXPIREAT', record, redis.call('PEXPIRETIME', record)) end
      end
    end
    if not code then
      local tail, extra = ' 0 - 0 - ' .. now .. ' ' .. now .. ' 0 ', NONE
      if nth > plain and (depth < max_depth or letters < max_dead) then
        extra = { 'object', ARGV[5 + 3 * alerts + nth - plain] }
        redis.call('SADD', objects, extra[2]) -- first: a name too many keeps an object, one too few could lose an alert
      end
      if traces[nth] then
        extra = { unpack(extra) }
        extra[#extra + 1], extra[#extra + 2] = 'trace', traces[nth]
      end
      if depth < max_depth then
        local id = redis.call('XADD', stream, '*', 'key', key, 'alert', alert, 'attempt', '0', 'first_at', now,
          unpack(extra))
        accepted, depth, code = accepted + 1, depth + 1, 1
        made[record] = 'queued ' .. id .. tail .. ' ' .. content
        redis.call('SET', record, made[record], 'PX', ttl)
      elseif letters < max_dead then
        local id = redis.call('XADD', dead, '*', 'key', key, 'reason', 'queue_full', 'error', '', 'status', '',
          'attempts', '0', 'deliveries', '0', 'first_at', now, 'died_at', now, 'alert', alert, unpack(extra))
        accepted, died, letters, code = accepted + 1, died + 1, letters + 1, 2
        made[record] = 'dead ' .. id .. tail .. 'queue_full ' .. content
        redis.call('SET', record, made[record], 'PX', ttl)
      else
        code = 3
      end
    end
    codes[#codes + 1] = code
  end
  if accepted > 0 then redis.call('HINCRBY', ledger, 'accepted', accepted) end
  if died > 0 then
    redis.call('HINCRBY', ledger, 'died', died)
    redis.call('HINCRBY', ledger, 'died_queue_full', died)
  end
  k, a = k + 5 + count, a + 4 + count
end
return codes
