#!lua flags=allow-oom
-- settle: carries out decisions. What is no longer ours to decide changes nothing.
--
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger, then one record per settlement,
--       then one resolved:<incident> per delivered resolution
-- ARGV  1 group, 2 consumer, 3 max_dead, 4 TTL of records in ms, 5 TTL of resolved in ms, 6 number of deliveries D,
--       then D times what was delivered: id, delivery count, attempts made, status or "-", first_at,
--       event time in ms of a resolution or "",
--       then any other settlement: verb, id, delivery count, "1" when it was claimed, attempts made, status or "-",
--       error, detail, number of fields F, then F fields and values; the records in the same order
--       verb       detail       fields
--       superseded ""           none
--       duplicate  ""           none
--       later      delay in ms  of the entry to come
--       dead       reason       of the entry, with what its dead letter shows as alert
-- Returns one integer per settlement: 1 done, 0 fenced: nothing changed, 2 dead letters are at their cap: it waits
--       in `retry` with its reason
local stream, retry, dead, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, max_dead, ttl, ttl_resolved = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local deliveries = tonumber(ARGV[6])
local FULL_DELAY = 30000
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', ms)
local owner, moment = ' ' .. consumer .. ' ', ' ' .. now .. ' 0  '
local answers, book, removed = {}, {}, {}

local function count(name) book[name] = (book[name] or 0) + 1 end

-- A success holds while the record names this entry in flight, whoever claimed it last, and XACK removes
-- something: a crash between that and the rest leaves an entry that is neither unread nor pending, which the
-- next reclaim finds.
local function deliver(record, text, a)
  local id = ARGV[a]
  local mine = 'in_flight ' .. id .. ' '
  if not text or string.sub(text, 1, #mine) ~= mine or redis.call('XACK', stream, group, id) == 0 then return 0 end
  redis.call('SET', record, 'delivered ' .. id .. ' ' .. ARGV[a + 1] .. owner .. ARGV[a + 2] .. ' ' .. ARGV[a + 3] .. ' '
    .. ARGV[a + 4] .. moment .. string.sub(text, -16), 'PX', ttl)
  removed[#removed + 1] = id
  count('delivered')
  return 1
end

-- A firing not later than this is superseded from now on.
local function resolve(resolved, at)
  local over = redis.call('GET', resolved)
  if not over or tonumber(over) < tonumber(at) then redis.call('SET', resolved, at, 'PX', ttl_resolved) end
end

-- Writes what is known of a delivery; keeps first_at and the hash of its content.
local function remember(s, state, next_at)
  redis.call('SET', s.record, state .. ' ' .. s.id .. ' ' .. s.deliveries .. owner .. s.attempts .. ' ' .. s.status .. ' '
    .. s.first_at .. ' ' .. now .. ' ' .. next_at .. ' ' .. s.error .. ' ' .. s.content, 'PX', ttl)
end

-- Entries leave the stream all at once, at the end.
local function remove(s)
  redis.call('XACK', stream, group, s.id)
  removed[#removed + 1] = s.id
end

local function wait(s, delay, fields)
  local due = string.format('%.0f', ms + delay)
  redis.call('ZADD', retry, due, s.id .. ' ' .. cmsgpack.pack(fields))
  if s.owns then remember(s, 'retrying', due) end
  remove(s)
end

local verbs = {}

function verbs.superseded(s)
  remember(s, 'delivered', '0')
  remove(s)
  count('superseded')
  return 1
end

function verbs.duplicate(s)
  remove(s)
  count('duplicate')
  return 1
end

function verbs.later(s, fields)
  wait(s, tonumber(s.detail), fields)
  return 1
end

function verbs.dead(s, fields)
  local f = {}
  for i = 1, #fields, 2 do f[fields[i]] = fields[i + 1] end
  if redis.call('XLEN', dead) >= max_dead then
    if not f.reason then
      for _, part in ipairs({ 'reason', s.detail, 'error', s.error, 'status', s.status }) do fields[#fields + 1] = part end
    end
    wait(s, FULL_DELAY, fields)
    return 2
  end
  redis.call('XADD', dead, '*', 'key', f.key or '', 'reason', s.detail, 'error', s.error,
    'status', s.status == '-' and '' or s.status, 'attempts', s.attempts, 'deliveries', s.deliveries,
    'first_at', f.first_at or now, 'died_at', now, 'alert', f.alert or '')
  if s.owns then remember(s, 'dead', '0') end
  remove(s)
  if not f.key then count('accepted') end
  count('died')
  return 1
end

-- Whether a settlement other than a success still holds: the entry is pending under me and, if it was claimed,
-- the record holds exactly my id, count and name. A record that names my entry is mine to write, claimed or not.
local function holds(s, text)
  local pending = redis.call('XPENDING', stream, group, s.id, s.id, 1)[1]
  if not pending or pending[2] ~= consumer then return false end
  local state, id, deliveries, claimant
  state, id, deliveries, claimant, s.first_at = string.match(text or '', '^(%S+) (%S+) (%S+) (%S+) %S+ %S+ (%S+)')
  s.content = string.sub(text or '', -16)
  s.owns = id == s.id and (state == 'in_flight' or state == 'queued')
  if not s.claimed then return true end
  return s.owns and state == 'in_flight' and deliveries == s.deliveries and claimant == consumer
    and pending[4] == tonumber(s.deliveries)
end

local function other(record, text, a)
  local s = { record = record, verb = ARGV[a], id = ARGV[a + 1], deliveries = ARGV[a + 2], claimed = ARGV[a + 3] == '1',
    attempts = ARGV[a + 4], status = ARGV[a + 5], error = ARGV[a + 6], detail = ARGV[a + 7] }
  local fields, width = {}, tonumber(ARGV[a + 8])
  for n = 1, width do fields[n] = ARGV[a + 8 + n] end
  return holds(s, text) and verbs[s.verb](s, fields) or 0, a + 9 + width
end

-- An entry may vanish while it is in hand, be booked as lost, and come back with this settlement: then the ledger
-- has one more than came in, and that one counts as accepted again.
local function book_found(vanished)
  local l = redis.call('HMGET', ledger, 'accepted', 'replayed', 'delivered', 'duplicate', 'superseded', 'died', 'lost')
  for n = 1, 7 do l[n] = tonumber(l[n] or 0) end
  local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
  local found = math.min(vanished, l[3] + l[4] + l[5] + l[6] + l[7] + depth - l[1] - l[2])
  if found > 0 then redis.call('HINCRBY', ledger, 'accepted', found) end
end

local a, i, next_resolved = 7, 1, #KEYS
for n = 7, 6 + 6 * deliveries, 6 do
  if ARGV[n + 5] ~= '' then next_resolved = next_resolved - 1 end
end
local known = redis.call('MGET', unpack(KEYS, 5, next_resolved))
while a <= #ARGV do
  if i <= deliveries then
    answers[i] = deliver(KEYS[4 + i], known[i], a)
    if ARGV[a + 5] ~= '' then
      next_resolved = next_resolved + 1
      if answers[i] == 1 then resolve(KEYS[next_resolved], ARGV[a + 5]) end
    end
    a = a + 6
  else
    answers[i], a = other(KEYS[4 + i], known[i], a)
  end
  i = i + 1
end
local vanished = #removed
for first = 1, #removed, 4000 do
  vanished = vanished - redis.call('XDEL', stream, unpack(removed, first, math.min(first + 3999, #removed)))
end
for name, by in pairs(book) do redis.call('HINCRBY', ledger, name, by) end
if vanished > 0 then book_found(vanished) end
return answers
