#!lua
-- observe: which episode of its incident an event belongs to. Idempotent by event time: what an event was
-- told once it is told again, and an event older than what is known changes nothing.
--
-- KEYS  one incident per event (the same one may come several times)
-- ARGV  1 dedupe.window in ms, 2 TTL in ms, 3 dedupe.repeat_interval in ms, then six per event:
--       status "firing" or "resolved"; "window" or "episode" (which starts its key is made from), or "repeated":
--       by a sender that repeats a firing while it lasts, whose key is made from the start that is known here;
--       event time in ms; start of the episode in ms, or ""; severity as rank and escaped text ("3critical"),
--       or "-"; destinations of a firing, joined by ",", or "-"
-- Returns per event, for a firing n, or { start of the episode, number of the repeat interval } of a repeated one;
--       for a resolution { time for the key, n, severity in the key, severity of the episode, destinations of its firing }
--       n: resolutions of the incident, earlier than the event, in the same window; "-" for none
--
-- An incident is one string: status, start and last event time in ms, severity, destinations, and its latest
-- closed episodes "start:end:n:severity", oldest first, joined by ",".
local window, ttl, interval = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local KEEP = 16
local LATE = 120000 -- ms after an episode's end for which a firing that began before it is late, not news
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local texts = redis.call('MGET', unpack(KEYS))
local written = {} -- by this very call: an incident may come several times

local function store(key, text)
  written[key] = text
  redis.call('SET', key, text, 'PX', ttl)
end

local function read(text)
  local known = { status = 'none', start = 0, last = -1, severity = '-', destinations = '-', past = {} }
  if not text then return known end
  local status, start, last, severity, destinations, past =
    string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  known.status, known.start, known.last = status, tonumber(start), tonumber(last)
  known.severity, known.destinations = severity, destinations
  for from, to, n, told in string.gmatch(past, '([^:,]+):([^:,]+):([^:,]+):([^:,]+)') do
    known.past[#known.past + 1] = { start = tonumber(from), stop = tonumber(to), n = tonumber(n), severity = told }
  end
  return known
end

local function write(key, known)
  local past = {}
  for i = math.max(1, #known.past - KEEP + 1), #known.past do
    local e = known.past[i]
    past[#past + 1] = string.format('%.0f:%.0f:%d:%s', e.start, e.stop, e.n, e.severity)
  end
  store(key, string.format('%s %.0f %.0f %s %s %s', known.status, known.start, known.last, known.severity,
    known.destinations, #past > 0 and table.concat(past, ',') or '-'))
end

local function resolutions_before(known, at)
  for i = #known.past, 1, -1 do
    local e = known.past[i]
    if e.stop < at then
      return math.floor(e.stop / window) == math.floor(at / window) and e.n + 1 or 0
    end
  end
  return 0
end

local function higher(a, b)
  if a == '-' then return b end
  if b == '-' or string.byte(a) >= string.byte(b) then return a end
  return b
end

local function join(a, b)
  if a == '-' then return b end
  local seen = ',' .. a .. ','
  for name in string.gmatch(b, '[^,]+') do
    if name ~= '-' and not string.find(seen, ',' .. name .. ',', 1, true) then seen = seen .. name .. ',' end
  end
  return string.sub(seen, 2, -2)
end

-- A firing opens an episode, or belongs to the open one, or is too old to say anything.
local function fire(known, at, severity, destinations)
  local news = at > known.last
  if news and known.status ~= 'firing' then
    known.status, known.start, known.last = 'firing', at, at
    known.severity, known.destinations = severity, destinations
    return true
  end
  if known.status ~= 'firing' or at < known.start then return false end
  local rank, all = higher(known.severity, severity), join(known.destinations, destinations)
  local changed = news or rank ~= known.severity or all ~= known.destinations
  known.last, known.severity, known.destinations = math.max(at, known.last), rank, all
  return changed
end

-- A repeated firing belongs to the open episode, whatever start it tells: its sender may have been started anew, or be
-- one of a pair. One that began before the latest end is late, until it has been told for so long after it that its
-- sender can't know of that end: then it fires again, from now on. Returns whether that is news, the episode's start,
-- and up to when it has lasted.
local function go_on(known, at, severity, destinations)
  if known.status == 'firing' then
    local before = known.destinations
    known.destinations = join(before, destinations)
    return known.destinations ~= before, known.start, now
  end
  local closed = known.past[#known.past]
  if closed and at <= closed.stop then
    if now < closed.stop + LATE then return false, closed.start, math.min(now, closed.stop) end
    at = now
  end
  known.status, known.start, known.last = 'firing', at, at
  known.severity, known.destinations = severity, destinations
  return true, at, now
end

-- A resolution closes the open episode, or repeats the one that closed it, or is the first that is heard of it. `start`
-- is that of the episode it was told for, 0 when that says nothing.
local function resolve(known, at, severity, start)
  local open = known.status == 'firing' and known.start <= at
  if not open then
    for i = #known.past, 1, -1 do
      local e = known.past[i]
      if e.start <= at and start <= e.stop then return false, e end
    end
  end
  local n = resolutions_before(known, at)
  local episode = { start = open and known.start or start, stop = at, n = n, severity = severity }
  if at < known.last then return false, episode end
  known.past[#known.past + 1] = episode
  known.status, known.last = 'resolved', at
  return true, episode
end

local function plain(ranked)
  return ranked == '-' and '-' or string.sub(ranked, 2)
end

local function firing(key, text, form, at, severity, destinations)
  local known = read(text)
  if fire(known, at, severity, destinations) then write(key, known) else redis.call('PEXPIRE', key, ttl) end
  return form == 'window' and resolutions_before(known, at) or 0
end

local function repeated_firing(key, text, at, severity, destinations)
  local known = read(text)
  local news, start, upto = go_on(known, at, severity, destinations)
  if news then write(key, known) else redis.call('PEXPIRE', key, ttl) end
  return { string.format('%.0f', start), math.max(0, math.floor((upto - start) / interval)) }
end

local function time_for_key(form, start, episode)
  if form == 'episode' then return start end
  return string.format('%.0f', form == 'repeated' and episode.start or episode.stop)
end

local function resolution(key, text, form, at, start, severity)
  local known = read(text)
  local changed, episode = resolve(known, at, severity, form == 'repeated' and tonumber(start) or 0)
  if changed then write(key, known) end
  return { time_for_key(form, start, episode), episode.n, plain(episode.severity), plain(known.severity),
    known.destinations }
end

local answers = {}
for i = 1, #KEYS do
  local key = KEYS[i]
  local a = 6 * i - 2
  local status, form, at, severity, destinations = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 4], ARGV[a + 5]
  local text = written[key] or texts[i]
  if status == 'resolved' then
    answers[i] = resolution(key, text, form, tonumber(at), ARGV[a + 3], severity)
  elseif form == 'repeated' then
    answers[i] = repeated_firing(key, text, tonumber(at), severity, destinations)
  elseif text then
    answers[i] = firing(key, text, form, tonumber(at), severity, destinations)
  else -- the first that is heard of it: the usual case, and the same as `fire` makes of nothing
    store(key, 'firing ' .. at .. ' ' .. at .. ' ' .. severity .. ' ' .. destinations .. ' -')
    answers[i] = 0
  end
end
return answers
