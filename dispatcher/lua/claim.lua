#!lua flags=allow-oom
-- claim: makes the records of taken entries say who delivers them now, so that no two do.
--
-- KEYS  1 stream, then one record per entry, then one resolved:<incident> per entry
-- ARGV  1 group, 2 consumer, 3 TTL of records in ms, then five per entry, in stream order:
--       id, its delivery count, failures so far, first_at,
--       event time in ms of a firing, "" for a resolution, "force" for what is to be sent whatever is known
-- Returns one integer per entry:
--       1 deliver: the record is mine; 2 duplicate: another copy was delivered, record untouched;
--       3 look again: another copy is in flight, record untouched; 4 superseded by a resolution: the record is mine;
--       5 not pending under me with this count: not mine to touch
local stream, group, consumer, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local entries = (#KEYS - 1) / 2
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local MANY = 10000 -- more than any consumer has pending between the first and the last of a batch

local mine = {}
for _, p in ipairs(redis.call('XPENDING', stream, group, ARGV[4], ARGV[#ARGV - 4], MANY, consumer)) do
  mine[p[1]] = p[4]
end
local known = redis.call('MGET', unpack(KEYS, 2))
local claimed = {} -- by this very call: two copies of a key may have been taken together

local function pending(id)
  return #redis.call('XPENDING', stream, group, id, id, 1) > 0
end

-- What the record allows, and what of it is kept: status, error and hash of the content (its last 16 characters).
-- A record that append has just made is the usual case, and is told by its beginning.
local function judge(record, text, id, force)
  if claimed[record] then return 3 end
  if not text then return 1, '-', '', '----------------' end
  if string.sub(text, 1, 7) == 'queued ' then return 1, '-', '', string.sub(text, -16) end
  local state, holder, status, error, content =
    string.match(text, '^(%S+) (%S+) %S+ %S+ %S+ (%S+) %S+ %S+ %S+ (.*) (%S+)$')
  if state == 'delivered' and not force then return 2 end
  if state == 'in_flight' and holder ~= id and pending(holder) then return 3 end
  return 1, status, error, content
end

local verdicts, owner, moment = {}, ' ' .. consumer .. ' ', ' ' .. now .. ' 0 '
for i = 1, entries do
  local a = 5 * i - 1
  local id, deliveries, since, record = ARGV[a], ARGV[a + 1], ARGV[a + 4], KEYS[1 + i]
  local verdict = 5
  if mine[id] == tonumber(deliveries) then
    local status, error, content
    verdict, status, error, content = judge(record, known[i], id, since == 'force')
    if verdict == 1 then
      redis.call('SET', record, 'in_flight ' .. id .. ' ' .. deliveries .. owner .. ARGV[a + 2] .. ' ' .. status .. ' '
        .. ARGV[a + 3] .. moment .. error .. ' ' .. content, 'PX', ttl)
      claimed[record] = true
      local over = known[entries + i]
      if over and tonumber(since) and tonumber(over) >= tonumber(since) then verdict = 4 end
    end
  end
  verdicts[i] = verdict
end
return verdicts
