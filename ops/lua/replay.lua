#!lua flags=allow-oom
-- replay: moves dead letters back to the queue, with a fresh attempt count. Oldest first; stops when the queue is full.
-- One call looks at 2000 of them, or 16 MiB, at most.
--
-- redis-cli --eval replay.lua '{redispatch:pager}:stream' '{redispatch:pager}:dead' '{redispatch:pager}:ledger' \
--   '{redispatch:pager}:retry' , limit=100 reason=attempts
-- KEYS  1 stream, 2 dead, 3 ledger, 4 retry, all of one destination
-- ARGV  limit=100 (so many at most), max_depth=100000 (queue.max_depth), "force" to send again what was delivered
--       meanwhile, and
--       ids, or any of reason=attempts, key=db1:* (* and ? stand for any characters), since=2h and until=10m (died so
--       long ago; s m h d, or ms since the epoch), after=ID (go on behind that one)
-- Returns { moved, ids that are not there, "full" or "", the same in words }
local USAGE = "replay.lua 'D:stream' 'D:dead' 'D:ledger' 'D:retry' , [limit=100] [max_depth=100000] [force] "
  .. '[reason=attempts] [key=db1:*] [since=2h] [until=10m] [after=ID] | ID ...'
local stream, dead, ledger, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

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

local tag = string.match(stream or '', '^({.+}:)stream$')
if not tag or dead ~= tag .. 'dead' or ledger ~= tag .. 'ledger' or retry ~= tag .. 'retry' then
  return refuse('these are not the keys')
end
local wrong = read('force')
if wrong then return refuse(wrong) end

local moved, full, max_depth = 0, '', want.max_depth or 100000
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
local letters, missing, last = choose(want.limit or math.max(#ids, 100))
for _, letter in ipairs(letters) do
  if depth >= max_depth then full = 'full' break end
  local f = letter.fields
  local entry = { 'key', f.key or '', 'alert', f.alert or '', 'attempt', '0', 'first_at', string.format('%.0f', now),
    'replay_of', letter.id }
  if want.force then entry[11], entry[12] = 'force', '1' end
  if f.object then entry[#entry + 1], entry[#entry + 2] = 'object', f.object end
  if f.trace then entry[#entry + 1], entry[#entry + 2] = 'trace', f.trace end
  redis.call('XADD', stream, '*', unpack(entry))
  redis.call('HINCRBY', ledger, 'replayed', 1)
  redis.call('XDEL', dead, letter.id)
  moved, depth = moved + 1, depth + 1
end
local told = 'replayed ' .. counted(moved) .. (missing > 0 and ', ' .. missing .. ' of the ids are not there' or '')
if full ~= '' then told = told .. '; stopped, the queue is full (' .. max_depth .. ')'
elseif last then told = told .. '; there may be more: again, with after=' .. last end
return { moved, missing, full, told }
