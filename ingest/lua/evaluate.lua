#!lua
-- evaluate: stores readings, and keeps the episodes of rules with `clear`.
-- One call for all readings that arrived while the last one was under way. Refused at maxmemory, before
-- anything is written: the sender then gets a 503.
--
-- KEYS  1 readings, then those of kind rule, each once
-- ARGV  1 readings to keep, about, 2 ms for which an episode is remembered, 3 number of readings,
--       then for each reading: host, metric, value, timestamp (ms), labels (JSON),
--       then for each judgement of a rule: index in KEYS, verdict, timestamp (ms) of its reading;
--       verdict is `fires`, `clears` or `between`
-- Returns two strings for each judgement: start and end of the episode (ms) that an alert is due for. Both
-- empty: no alert. End empty: it is firing. Else it was resolved then, by this reading or one before it.
--
-- A rule's hash holds its latest episodes: start -> `<newest reading that fires>:<end, empty while open>`.
-- Everything goes by the readings' own times, so that a repeated or late one gives the alert it gave
-- before and changes nothing:
--   fires     belongs to the earliest episode that is open or ends after it; else a new one starts with it
--   clears    resolves again the episode that it ended, or one that ended less than AGAIN before it, or ends the open
--             one if nothing newer fires
--   between   changes nothing, but keeps the episode remembered
local stream, keep, remember, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local REMEMBERED = 16 -- episodes of an incident
-- ms. Whoever died between this script and append has lost the resolution, unless the sender repeats its reading; the
-- next one says it again, as each one that fires says that. The key is the same, so that it is delivered once.
local AGAIN = 900000

local function episodes_of(key)
  local flat, episodes = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    local newest, ended = string.match(flat[i + 1], '^(%d+):(%d*)$')
    table.insert(episodes, {
      start = flat[i], at = tonumber(flat[i]), newest = tonumber(newest), ended = tonumber(ended),
    })
  end
  table.sort(episodes, function(a, b) return a.at < b.at end)
  return episodes
end

local function write(key, start, newest, ended)
  redis.call('HSET', key, start, newest .. ':' .. ended)
  redis.call('PEXPIRE', key, remember)
end

local function fires(key, time)
  local at, episodes = tonumber(time), episodes_of(key)
  for _, episode in ipairs(episodes) do
    if not episode.ended or episode.ended > at then
      if not episode.ended and at > episode.newest then write(key, episode.start, time, '') end
      return episode.start, ''
    end
  end
  write(key, time, time, '')
  if #episodes >= REMEMBERED then redis.call('HDEL', key, episodes[1].start) end
  return time, ''
end

local function clears(key, time)
  local at, episodes = tonumber(time), episodes_of(key)
  for _, episode in ipairs(episodes) do
    if episode.ended == at then return episode.start, time end
  end
  local last = episodes[#episodes]
  if last and last.ended and at > last.ended and at <= last.ended + AGAIN then
    return last.start, string.format('%.0f', last.ended)
  end
  if not last or last.ended or at <= last.newest then return '', '' end
  write(key, last.start, string.format('%.0f', last.newest), time)
  return last.start, time
end

local function between(key)
  redis.call('PEXPIRE', key, remember)
  return '', ''
end

local verdicts = { fires = fires, clears = clears, between = between }
local at = 3
for _ = 1, count do
  redis.call('XADD', stream, 'MAXLEN', '~', keep, '*', 'host', ARGV[at + 1], 'metric', ARGV[at + 2],
    'value', ARGV[at + 3], 'timestamp', ARGV[at + 4], 'labels', ARGV[at + 5])
  at = at + 5
end
local due = {}
while at < #ARGV do
  local key, verdict, time = KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2], ARGV[at + 3]
  local start, ended = verdicts[verdict](key, time)
  table.insert(due, start)
  table.insert(due, ended)
  at = at + 3
end
return due
