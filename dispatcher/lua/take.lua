#!lua flags=allow-oom
-- take: looks at the gate, moves what is due from `retry` to the stream, and says when to look again.
--
-- The fast way is for an open gate and no rate; the read follows in the same pipeline. The careful way reads in here,
-- never more than gate, ramp and rate allow: behind a gate whose time is over just one entry, the probe.
--
-- KEYS  1 stream, 2 retry, 3 gate, 4 rate
-- ARGV  1 how many at most; the careful way has also
--       2 group, 3 consumer, 4 attempts per second or "", 5 ms for which a probe is one's own, 6 attempts made besides
-- Returns { gate's state or "", its reason, its end in ms or 0, 1 while it ramps, now in ms,
--           due time of the next retry in ms or -1, id of the stream's last entry, ms until more may be read or -1
--           when nothing is held back, 1 when what was read is the probe, what was read }
-- Raises NOGROUP. On the fast way nothing is moved while the gate is closed or ramps, and what is read does not count.
local stream, retry, gate, rate, most = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])
local careful, group, consumer, per_second = #ARGV > 1, ARGV[2], ARGV[3], tonumber(ARGV[4] or '')
local LOOK, LOOK_PROBE, STEP = 1000, 100, 10 -- ms between two looks: at a closed gate, at a probe, at ramp and rate
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The ramp: how many attempts the fleet makes in each second after the probe, evenly spread. Wherever seconds begin,
-- that of the probe being the first, none holds more than twice the one before (searched by trying all phases: 2 3 4 6
-- does not). What is not used within half a second is not kept. It is over when nothing would hold back any more.
local SECONDS = { 2, 2, 3, 4, 6, 9, 13, 20, 30, 45, 67, 100, 150, 225, 337, 505, 757, 1135, 1700, 2550, 3800, 5700, 8500 }
local KEPT, RAMP = 0.5, #SECONDS * 1000

local function allowed_after(t)
  local sum, whole = 0, math.floor(t)
  for second = 1, math.min(whole, #SECONDS) do sum = sum + SECONDS[second] end
  return math.floor(sum + (SECONDS[whole + 1] or 0) * (t - whole) + 0.000001)
end

local function time_of(attempt)
  for second, attempts in ipairs(SECONDS) do
    if attempt <= attempts then return second - 1 + attempt / attempts end
    attempt = attempt - attempts
  end
  return #SECONDS
end

local state, ramp = unpack(redis.call('HMGET', gate, 'state', 'ramp'))
ramp = tonumber(ramp or nil)
if ramp and now - ramp >= RAMP then
  redis.call('HDEL', gate, 'ramp')
  ramp = nil
elseif ramp and now < ramp then -- the clock went back
  redis.call('HSET', gate, 'ramp', string.format('%.0f', now))
  ramp = now
end
local reason, till, probe = '', 0, 0

local function nothing(wait)
  return { state or '', reason, till, ramp and 1 or 0, now, -1, '0-0', wait, 0, {} }
end

-- Ms until a probe may be made here; none behind a gate that waits for resume.
local function until_probe()
  local known = redis.call('HMGET', gate, 'reason', 'until', 'prober', 'lease', 'opened_at')
  reason, till = known[1] or '', tonumber(known[2] or nil) or 0
  if state ~= 'breaker' and state ~= 'throttled' then return LOOK end
  if (tonumber(known[5] or nil) or 0) > now then -- the clock went back
    redis.call('HSET', gate, 'opened_at', string.format('%.0f', now), 'until', string.format('%.0f', now))
    redis.call('HDEL', gate, 'prober', 'lease')
    return 0
  end
  if till > now then return math.min(LOOK, till - now) end
  if known[3] and (tonumber(known[4] or nil) or 0) > now then return LOOK_PROBE end
  return 0
end

if state then
  local wait = until_probe()
  if wait > 0 or not careful then return nothing(wait) end
  probe = 1
elseif ramp and not careful then
  return nothing(0)
end

-- What ramp and rate have left, and how long one more takes once so many are spent.
local known = careful and redis.call('HMGET', rate, 'tokens', 'at', 'ramp', 'ramped') or {}
local used, passed, tokens
if ramp then
  passed = (now - ramp) / 1000
  used = tonumber(known[3]) == ramp and tonumber(known[4]) or 0
  used = math.max(used, allowed_after(math.max(0, passed - KEPT)))
end
if per_second then
  local full = math.max(1, per_second)
  local since = now - (tonumber(known[2] or nil) or 0)
  if since < -1000 then since = full / per_second * 1000 end -- the clock went back
  since = math.max(0, since)
  tokens = math.min(full, (tonumber(known[1] or nil) or full) + since * per_second / 1000) - tonumber(ARGV[6])
end

local function left()
  local n = probe == 1 and 1 or most
  if ramp then n = math.min(n, allowed_after(passed) - used) end
  if tokens then n = math.min(n, math.floor(tokens + 0.000001)) end
  return math.max(0, n)
end

local function until_more(spent)
  local ms = 0
  if ramp then ms = (time_of(used + spent + 1) - passed) * 1000 end
  if tokens then ms = math.max(ms, (1 + spent - tokens) / per_second * 1000) end
  return math.max(STEP, math.ceil(ms))
end

local function spend(n)
  if n == 0 and tonumber(ARGV[6]) == 0 then return end
  if ramp then
    redis.call('HSET', rate, 'ramp', string.format('%.0f', ramp), 'ramped', string.format('%.0f', used + n))
  end
  if tokens then
    redis.call('HSET', rate, 'tokens', string.format('%.6f', tokens - n), 'at', string.format('%.0f', now))
  end
end

-- What did not come from settle goes on as it is, to die as malformed; it must not stop the others.
local function fields_of(member)
  local at = string.find(member, ' ', 1, true) or 0
  local sound, fields = pcall(cmsgpack.unpack, string.sub(member, at + 1))
  sound = sound and type(fields) == 'table' and #fields > 0 and #fields % 2 == 0 and #fields < 2000
  for i = 1, sound and #fields or 0 do sound = sound and type(fields[i]) == 'string' end
  return sound and fields or { 'alert', member }
end

local allowed = left()
local due = allowed > 0 and redis.call('ZRANGEBYSCORE', retry, '-inf', now, 'LIMIT', 0, allowed) or {}
for _, member in ipairs(due) do
  redis.call('XADD', stream, '*', unpack(fields_of(member)))
  redis.call('ZREM', retry, member)
end
local first = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')
local tail = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
local entries, wait = {}, -1
if careful then
  if allowed > 0 then
    local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', allowed, 'STREAMS', stream, '>')
    entries = read and read[1][2] or {}
  end
  spend(#entries)
  if #entries == 0 and allowed > 0 then
    probe = 0
  elseif probe == 1 and allowed > 0 then
    redis.call('HSET', gate, 'prober', consumer, 'lease', string.format('%.0f', now + ARGV[5]))
    wait = LOOK_PROBE
  elseif #entries == allowed and allowed < most then
    probe, wait = 0, until_more(#entries)
  end
end
return { state or '', reason, till, ramp and 1 or 0, now, first[2] and tonumber(first[2]) or -1,
  tail[1] and tail[1][1] or '0-0', wait, probe, entries }
