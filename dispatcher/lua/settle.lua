#!lua flags=allow-oom
-- settle: carries out decisions, and tells the gate what came of it. What is no longer ours to decide changes nothing.
--
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger, 5 gate, 6 objects, then one record per settlement,
--       then one resolved:<incident> per delivered resolution
-- ARGV  1 group, 2 consumer, 3 max_dead, 4 TTL of records in ms, 5 TTL of resolved in ms, 6 number of deliveries D,
--       7 number of words of news W, 0 when there is nothing but successes to tell, 8 number of objects O,
--       then the news about the destination: what came of the probe ("ok", "failed", "throttled", "back": no attempt was
--       made, or ""), failures since the last success, the last one's error, failures that close the gate, ms for which,
--       ms that the destination asked for or 0, what it said then, error of the last that met gate_on, keys that did
--       since the last success,
--       then O times what nobody needs any more once it is done: place of the settlement in the answer, object's name,
--       then D times what was delivered: id, words 3 to 7 of its record (common/record.py),
--       event time in ms of a resolution or "",
--       then any other settlement: verb, id, delivery count, "" when it was not claimed, "gone" when it met gate_on,
--       else "1", attempts made, status or "-", error, detail, number of fields F, then F fields and values;
--       the records in the same order
--       verb       detail       fields
--       superseded ""           none
--       duplicate  ""           none
--       later      delay in ms  of the entry to come
--       dead       reason       of the entry, with what its dead letter shows as alert
-- Returns one integer per settlement: 1 done, 0 fenced: nothing changed, 2 dead letters are at their cap: it waits
--       in `retry` with its reason, 3 the gate is `gone`: it waits in `retry`, its attempt not counted
local stream, retry, dead, ledger, gate, objects = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, consumer, max_dead, ttl, ttl_resolved = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local deliveries, words, held = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local FULL_DELAY = 30000
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', ms)
local owner, moment = ' ' .. consumer .. ' ', ' ' .. now .. ' 0  '
local answers, book, removed = {}, {}, {}

-- The gate: what closes it gives way only to what ranks at least as high. `gone` and `paused` end by resume, the others
-- at `until` by a probe.
local RANK = { throttled = 1, breaker = 2, paused = 3, gone = 4 }

local function close(g, state, reason, till)
  if RANK[state] < (RANK[g.state] or 0) then return end
  g.state, g.reason, g.ramp, g.opened_at = state, reason, nil, g.opened_at or now
  g['until'] = till and string.format('%.0f', math.max(till, tonumber(g['until'] or 0))) or nil
end

-- Only the holder of the lease speaks for the probe. What asks to be left alone closes the gate anew below.
local function end_probe(g, result, reason, open)
  g.prober, g.lease = nil, nil
  if result == 'back' or RANK[g.state] > RANK.breaker then return end
  g.state = nil
  if result == 'failed' then close(g, 'breaker', reason, ms + open) end
  if result == 'ok' then g.reason, g['until'], g.opened_at, g.failures, g.ramp = nil, nil, nil, nil, now end
end

local function meet_gone(g, key, reason)
  if g.state == 'gone' or g.gone_1 == key or g.gone_2 == key then return end
  if not g.gone_1 then g.gone_1 = key elseif not g.gone_2 then g.gone_2 = key else close(g, 'gone', reason) end
end

-- Returns the gate's state afterwards; writes nothing when successes find no hash, the usual case.
local function hear()
  local g, flat = {}, redis.call('HGETALL', gate)
  for n = 1, #flat, 2 do g[flat[n]] = flat[n + 1] end
  if words == 0 and not g.failures and not g.gone_1 then return g.state end
  local result, failures, failed, most, open, throttled, refused, gone = unpack(ARGV, 9, words > 0 and 16 or 8)
  if g.prober == consumer and (result or '') ~= '' then end_probe(g, result, failed, open) end
  if deliveries > 0 then g.failures, g.gone_1, g.gone_2 = nil, nil, nil end
  for n = 17, 8 + words do meet_gone(g, ARGV[n], gone) end
  if tonumber(failures or 0) > 0 and (not g.state or g.state == 'throttled') then
    g.failures = string.format('%.0f', (g.failures or 0) + failures)
    if tonumber(g.failures) >= tonumber(most) then close(g, 'breaker', failed, ms + open) end
  end
  if tonumber(throttled or 0) > 0 then close(g, 'throttled', refused, ms + throttled) end
  redis.call('DEL', gate)
  local fields = {}
  for name, value in pairs(g) do fields[#fields + 1], fields[#fields + 2] = name, value end
  if #fields > 0 then redis.call('HSET', gate, unpack(fields)) end
  return g.state
end

local function count(name) book[name] = (book[name] or 0) + 1 end

-- A success holds while the record names this entry in flight, whoever claimed it last, and XACK removes
-- something: a crash between that and the rest leaves an entry that is neither unread nor pending, which the
-- next reclaim finds.
local function deliver(record, text, a)
  local id = ARGV[a]
  local mine = 'in_flight ' .. id .. ' '
  if not text or string.sub(text, 1, #mine) ~= mine or redis.call('XACK', stream, group, id) == 0 then return 0 end
  redis.call('SET', record, 'delivered ' .. id .. ' ' .. ARGV[a + 1] .. moment .. string.sub(text, -16), 'PX', ttl)
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

-- What a dead letter has beside what all of them have.
local function optional(f)
  local extra = f.object and { 'object', f.object } or {}
  if f.trace then extra[#extra + 1], extra[#extra + 2] = 'trace', f.trace end
  return unpack(extra)
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
    'first_at', f.first_at or now, 'died_at', now, 'alert', f.alert or '', optional(f))
  if s.owns then remember(s, 'dead', '0') end
  remove(s)
  if not f.key then count('accepted') end
  count('died')
  count('died_' .. s.detail)
  return 1
end

-- Waits behind a gate that is gone, the attempt just made not counted.
local function spare(s, fields)
  s.attempts = string.format('%.0f', s.attempts - 1)
  for i = 1, #fields, 2 do
    if fields[i] == 'attempt' then fields[i + 1] = s.attempts end
  end
  wait(s, 0, fields)
  return 3
end

-- What was not tried now keeps what its last attempt met.
local function keep_last(s, status, error)
  if s.error == '' then
    s.status, s.error = status, error
  elseif s.detail == 'max_age' or s.detail == 'max_deliveries' then
    s.status = status
    if error ~= '' then s.error = s.error .. '; at the last attempt: ' .. error end
  end
end

-- Whether a settlement other than a success still holds: the entry is pending under me and, if it was claimed,
-- the record holds exactly my id, count and name. A record that names my entry is mine to write, claimed or not.
local function holds(s, text)
  local pending = redis.call('XPENDING', stream, group, s.id, s.id, 1)[1]
  if not pending or pending[2] ~= consumer then return false end
  local state, id, deliveries, claimant, status, error
  state, id, deliveries, claimant, status, s.first_at, error =
    string.match(text or '', '^(%S+) (%S+) (%S+) (%S+) %S+ (%S+) (%S+) %S+ %S+ (.*) %S+$')
  s.content = string.sub(text or '', -16)
  s.owns = id == s.id and (state == 'in_flight' or state == 'queued')
  if s.owns and s.status == '-' then keep_last(s, status, error) end
  if not s.claimed then return true end
  return s.owns and state == 'in_flight' and deliveries == s.deliveries and claimant == consumer
    and pending[4] == tonumber(s.deliveries)
end

local function other(record, text, a, gate_state)
  local s = { record = record, verb = ARGV[a], id = ARGV[a + 1], deliveries = ARGV[a + 2], claimed = ARGV[a + 3] ~= '',
    attempts = ARGV[a + 4], status = ARGV[a + 5], error = ARGV[a + 6], detail = ARGV[a + 7] }
  local fields, width = {}, tonumber(ARGV[a + 8])
  for n = 1, width do fields[n] = ARGV[a + 8 + n] end
  local carry_out = ARGV[a + 3] == 'gone' and gate_state == 'gone' and spare or verbs[s.verb]
  return holds(s, text) and carry_out(s, fields) or 0, a + 9 + width
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

local first = 9 + words + 2 * held
local a, i, next_resolved = first, 1, #KEYS
for n = first, first - 1 + 3 * deliveries, 3 do
  if ARGV[n + 2] ~= '' then next_resolved = next_resolved - 1 end
end
local gate_state = deliveries + words > 0 and hear()
local known = #KEYS > 6 and redis.call('MGET', unpack(KEYS, 7, next_resolved)) or {}
while a <= #ARGV do
  if i <= deliveries then
    answers[i] = deliver(KEYS[6 + i], known[i], a)
    if ARGV[a + 2] ~= '' then
      next_resolved = next_resolved + 1
      if answers[i] == 1 then resolve(KEYS[next_resolved], ARGV[a + 2]) end
    end
    a = a + 3
  else
    answers[i], a = other(KEYS[6 + i], known[i], a, gate_state)
  end
  i = i + 1
end
local vanished = #removed
for first = 1, #removed, 4000 do
  vanished = vanished - redis.call('XDEL', stream, unpack(removed, first, math.min(first + 3999, #removed)))
end
for a = 9 + words, first - 1, 2 do
  if answers[tonumber(ARGV[a])] == 1 then redis.call('SREM', objects, ARGV[a + 1]) end
end
for name, by in pairs(book) do redis.call('HINCRBY', ledger, name, by) end
if vanished > 0 then book_found(vanished) end
return answers
