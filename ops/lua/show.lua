#!lua flags=allow-oom
-- show: dead letters with their alerts, a line per field. redis-cli --raw shows them as they are.
--
-- redis-cli --raw --eval show.lua '{redispatch:pager}:dead' , limit=1 reason=attempts
-- KEYS  1 dead
-- ARGV  limit=1 (so many at most), "whole" for alerts above 4 KiB, and
--       ids, or any of reason=attempts, key=db1:* (* and ? stand for any characters), since=2h and until=10m (died so
--       long ago; s m h d, or ms since the epoch), after=ID (go on behind that one)
-- Returns the lines, and whether there may be more
local USAGE = "show.lua 'D:dead' , [limit=1] [whole] "
  .. '[reason=attempts] [key=db1:*] [since=2h] [until=10m] [after=ID] | ID ...'
local dead = KEYS[1]
local LONGEST = 4096

-- choose: which dead letters are meant. The same lines in list, show, replay and discard; a test compares them.
local LOOK_AT, BYTES, PAGE, UNITS = 2000, 16777216, 20, { s = 1000, m = 60000, h = 3600000, d = 86400000 }
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids, want, readers = {}, {}, {}

local function refuse(why)
  local tag = string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:'
  return redis.error_reply('ERR ' .. why .. ' - usage: redis-cli --eval ' .. (string.gsub(USAGE, 'D:', tag)))
end

function readers.limit(text) return tonumber(string.match(text, '^[1-9]%d*$') or '') end
readers.max_depth = readers.limit
function readers.reason(text) return text end
function readers.after(text) return string.match(text, '^%d+%-%d+$') end
function readers.key(text)
  local escaped = string.gsub(text, '[%^%$%(%)%%%.%[%]%+%-]', '%%%0')
  return '^' .. string.gsub(escaped, '[*?]', { ['*'] = '.*', ['?'] = '.' }) .. '$'
end
function readers.since(text)
  local number, unit = string.match(text, '^(%d+)([smhd]?)$')
  return number and (unit == '' and tonumber(number) or math.max(0, now - number * UNITS[unit]))
end
readers['until'] = readers.since

-- Returns what is wrong with the words of ARGV, if anything; `flag` is one that may stand alone.
local function read(flag)
  for _, word in ipairs(ARGV) do
    local name, value = string.match(word, '^([%l_]+)=(.+)$')
    if string.match(word, '^%d+%-%d+$') then ids[#ids + 1] = word
    elseif word == flag then want[word] = true
    elseif not (readers[name] and string.find(USAGE, '[' .. name .. '=', 1, true)) then
      return 'what is ' .. word .. '?'
    else
      want[name] = readers[name](value)
      if not want[name] then return 'that is no ' .. word end
    end
  end
  if #ids > 0 and (want.reason or want.key or want.since or want['until'] or want.after) then
    return 'either ids or what they have to be like'
  end
end

local function letter_of(entry)
  local f = {}
  for i = 1, #entry[2], 2 do f[entry[2][i]] = entry[2][i + 1] end
  return { id = entry[1], fields = f }
end

-- Return letters, how many ids are not there, and the id behind which there may be more of them.
local function named(limit)
  local letters, missing, seen = {}, 0, {}
  for i = 1, math.min(#ids, limit) do
    local entry = not seen[ids[i]] and redis.call('XRANGE', dead, ids[i], ids[i])[1]
    if entry then letters[#letters + 1] = letter_of(entry) else missing = missing + 1 end
    seen[ids[i]] = true
  end
  return letters, missing, nil
end

local function scanned(limit)
  local from = want.after and '(' .. want.after or string.format('%.0f', want.since or 0)
  local to = want['until'] and string.format('%.0f', want['until']) or '+'
  local letters, seen, bytes, last = {}, 0, 0, nil
  while seen < LOOK_AT and bytes < BYTES do
    local page = redis.call('XRANGE', dead, from, to, 'COUNT', PAGE)
    for _, entry in ipairs(page) do
      if #letters == limit then return letters, 0, last end
      local letter = letter_of(entry)
      local f = letter.fields
      local fits = not want.reason or f.reason == want.reason
      if fits and (not want.key or string.match(f.key or '', want.key)) then letters[#letters + 1] = letter end
      last, bytes = letter.id, bytes + #(f.alert or '')
    end
    if #page < PAGE then return letters, 0, nil end
    from, seen = '(' .. last, seen + PAGE
  end
  return letters, 0, last
end

local function choose(limit) return (#ids > 0 and named or scanned)(limit) end

local function counted(number) return number == 1 and '1 dead letter' or number .. ' dead letters' end
-- chosen

if not string.match(dead or '', '^{.+}:dead$') then return refuse('the key has to be that of dead letters') end
local wrong = read('whole')
if wrong then return refuse(wrong) end

local function age(id)
  local seconds = math.max(0, (now - string.match(id, '^%d+')) / 1000)
  for _, unit in ipairs({ 'd', 'h', 'm' }) do
    local size = UNITS[unit] / 1000
    if seconds >= 2 * size then return math.floor(seconds / size) .. unit end
  end
  return math.floor(seconds) .. 's'
end

-- What a terminal might obey is escaped, for redis-cli --raw.
local function plain(text)
  local function escaped(c) return string.format('\\x%02x', string.byte(c)) end
  local stripped = string.gsub(text or '', '%c', escaped)
  return (string.gsub(stripped, '\194([\128-\159])', escaped))
end

local function alert_of(f)
  local alert = f.alert or ''
  if f.object then return 'in the object store, named ' .. plain(f.object) .. ': ' .. plain(alert) end
  if #alert <= LONGEST or want.whole then return plain(alert) end
  return plain(string.sub(alert, 1, LONGEST)) .. ' ... of ' .. #alert .. ' bytes: whole'
end

local letters, missing, last = choose(#ids > 0 and #ids or want.limit or 1)
local lines = {}
for _, letter in ipairs(letters) do
  local f = letter.fields
  lines[#lines + 1] = string.format('%-11s %s, died %s ago', 'id', letter.id, age(letter.id))
  for _, name in ipairs({ 'key', 'reason', 'error', 'status', 'attempts', 'deliveries', 'first_at' }) do
    lines[#lines + 1] = string.format('%-11s %s', name, plain(f[name]))
  end
  lines[#lines + 1] = string.format('%-11s %s', 'alert', '') .. alert_of(f)
end
local told = counted(#letters) .. (missing > 0 and ', ' .. missing .. ' of the ids are not there' or '')
lines[#lines + 1] = told .. (last and '; there may be more: after=' .. last or '')
return lines
