#!lua flags=allow-oom
-- settle: carries out decisions. What is no longer ours to decide changes nothing.
--
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger, then two per settlement: record, resolved:<incident>
-- ARGV  1 group, 2 consumer, 3 max_dead, 4 TTL of records in ms, 5 TTL of resolved in ms, then per settlement:
--       verb, id, delivery count, "1" when it was claimed, failures so far, status or "-", error text,
--       detail, number of fields F, then F fields and values of an entry
--       verb       detail                                     fields
--       delivered  event time in ms of a resolution, or ""    none
--       superseded ""                                         none
--       duplicate  ""                                         none
--       later      delay in ms                                of the entry to come
--       dead       reason                                     key, attempts, deliveries, first_at, alert and the entry's own
-- Returns one integer per settlement: 1 done, 0 fenced: nothing changed, 2 dead letters are at their cap: it waits
--       in `retry` with its reason
local stream, retry, dead, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, max_dead, ttl, ttl_resolved = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local FULL_DELAY = 30000
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', ms)
local letters = redis.call('XLEN', dead)
local book = {}

local function count(name) book[name] = (book[name] or 0) + 1 end

local function remove(id)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end

-- Writes what is known of a delivery; keeps first_at and the hash of its content.
local function remember(s, state, next_at)
  local first_at, content = string.match(s.known, '^%S+ %S+ %S+ %S+ %S+ %S+ (%S+) %S+ %S+ (%S+)')
  redis.call('SET', s.record, table.concat({ state, s.id, s.deliveries, consumer, s.attempts, s.status, first_at, now,
    next_at, content, s.error }, ' '), 'PX', ttl)
end

local function wait(s, delay, fields)
  local due = string.format('%.0f', ms + delay)
  redis.call('ZADD', retry, due, s.id .. ' ' .. cmsgpack.pack(fields))
  if s.owns then remember(s, 'retrying', due) end
  remove(s.id)
end

local verbs = {}

function verbs.delivered(s)
  if s.detail ~= '' then
    local over = redis.call('GET', s.resolved)
    if not over or tonumber(over) < tonumber(s.detail) then redis.call('SET', s.resolved, s.detail, 'PX', ttl_resolved) end
  end
  remember(s, 'delivered', '0')
  redis.call('XDEL', stream, s.id)
  count('delivered')
  return 1
end

function verbs.superseded(s)
  remember(s, 'delivered', '0')
  remove(s.id)
  count('superseded')
  return 1
end

function verbs.duplicate(s)
  remove(s.id)
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
  if letters >= max_dead then
    for name, value in pairs({ reason = s.detail, error = s.error, status = s.status }) do
      if not f[name] then fields[#fields + 1], fields[#fields + 2] = name, value end
    end
    wait(s, FULL_DELAY, fields)
    return 2
  end
  redis.call('XADD', dead, '*', 'key', f.key or '', 'reason', s.detail, 'error', s.error,
    'status', s.status == '-' and '' or s.status, 'attempts', s.attempts, 'deliveries', s.deliveries,
    'first_at', f.first_at or now, 'died_at', now, 'alert', f.alert or '')
  letters = letters + 1
  if s.owns then remember(s, 'dead', '0') end
  remove(s.id)
  if not f.key then count('accepted') end
  count('died')
  return 1
end

-- Whether this settlement still holds. A success holds while the record names this entry in flight, whoever
-- claimed it last, and XACK removes something: a crash between that and the rest leaves an entry that is
-- neither unread nor pending, which the next reclaim finds.
local function holds(s)
  local state, id, deliveries, owner
  if s.known then state, id, deliveries, owner = string.match(s.known, '^(%S+) (%S+) (%S+) (%S+)') end
  local names_me = id == s.id and (state == 'in_flight' or state == 'queued')
  if s.claimed and s.verb == 'delivered' then
    return names_me and state == 'in_flight' and redis.call('XACK', stream, group, s.id) == 1
  end
  local pending = redis.call('XPENDING', stream, group, s.id, s.id, 1)[1]
  if not pending or pending[2] ~= consumer then return false end
  s.owns = names_me
  if not s.claimed then return true end
  return names_me and state == 'in_flight' and deliveries == s.deliveries and owner == consumer
    and pending[4] == tonumber(s.deliveries)
end

local answers, a, i = {}, 6, 1
while a <= #ARGV do
  local s = { verb = ARGV[a], id = ARGV[a + 1], deliveries = ARGV[a + 2], claimed = ARGV[a + 3] == '1',
    attempts = ARGV[a + 4], status = ARGV[a + 5], error = ARGV[a + 6], detail = ARGV[a + 7],
    record = KEYS[3 + 2 * i], resolved = KEYS[4 + 2 * i] }
  local fields, width = {}, tonumber(ARGV[a + 8])
  for n = 1, width do fields[n] = ARGV[a + 8 + n] end
  s.known = redis.call('GET', s.record)
  answers[i] = holds(s) and verbs[s.verb](s, fields) or 0
  a, i = a + 9 + width, i + 1
end
for name, by in pairs(book) do redis.call('HINCRBY', ledger, name, by) end
return answers
