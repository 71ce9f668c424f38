#!lua flags=allow-oom
-- claim: makes the records of taken entries say who delivers them now, so that no two do.
--
-- KEYS  1 stream, then one record per entry, then one resolved:<incident> per firing
-- ARGV  1 group, 2 consumer, 3 TTL of records in ms, 4 number of entries,
--       5 server time in ms, less than 1 s ahead, until which nobody can have taken over entries that I have just read,
--       or 0, then five per entry, in stream order:
--       id, its delivery count, failures so far, first_at,
--       event time in ms of a firing, "" for a resolution, "force" for what is to be sent whatever is known
-- Returns one integer per entry:
--       1 deliver: the record is mine; 2 duplicate: another copy was delivered, record untouched;
--       3 look again: another copy is in flight, record untouched; 4 superseded by a resolution: the record is mine;
--       5 not pending under me with this count: not mine to touch
local stream, group, consumer, ttl, entries = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local left = tonumber(ARGV[5]) - ms
local just_read = left > 0 and left <= 1000 -- more than that: the clock was set back
local known = redis.call('MGET', unpack(KEYS, 2))
local claimed = {} -- by this very call: two copies of a key may have been taken together

local MANY = 10000 -- more than any consumer has pending between the first and the last of a batch
local counts = nil

-- Of an entry that is pending under me. What has just been read and whose record still says that it waits was claimed
-- by nobody, and nobody can have taken it over: then it is not asked for, which would cost a sixth of a claim.
local function delivery_count(id)
  if not counts then
    counts = {}
    for _, p in ipairs(redis.call('XPENDING', stream, group, ARGV[6], ARGV[#ARGV - 4], MANY, consumer)) do
      counts[p[1]] = p[4]
    end
  end
  return counts[id]
end

local function pending(id)
  return #redis.call('XPENDING', stream, group, id, id, 1) > 0
end

-- What the record allows, and what of it is kept: status, error and hash of the content (its last 16 characters).
-- A record that `waits` is as append has left it: the usual case.
local function judge(record, text, id, force, waits)
  if claimed[record] then return 3 end
  if not text then return 1, '-', '', '----------------' end
  if waits then return 1, '-', '', string.sub(text, -16) end
  local state, holder, status, error, content =
    string.match(text, '^(%S+) (%S+) %S+ %S+ %S+ (%S+) %S+ %S+ %S+ (.*) (%S+)$')
  if state == 'delivered' and not force then return 2 end
  if state == 'in_flight' and holder ~= id and pending(holder) then return 3 end
  return 1, status, error, content
end

local verdicts, owner, next_resolved = {}, ' ' .. consumer .. ' ', entries
local moment = string.format(' %.0f 0 ', ms)
for i = 1, entries do
  local a, record, text = 5 * i + 1, KEYS[1 + i], known[i]
  local id, deliveries, since, over = ARGV[a], ARGV[a + 1], ARGV[a + 4], nil
  if since ~= '' and since ~= 'force' then
    next_resolved = next_resolved + 1
    over = known[next_resolved]
  end
  local waits = text and string.sub(text, 1, #id + 8) == 'queued ' .. id .. ' '
  local verdict, status, error, content = 5, nil, nil, nil
  if waits and just_read or delivery_count(id) == tonumber(deliveries) then
    verdict, status, error, content = judge(record, text, id, since == 'force', waits)
  end
  if verdict == 1 then
    redis.call('SET', record, 'in_flight ' .. id .. ' ' .. deliveries .. owner .. ARGV[a + 2] .. ' ' .. status .. ' '
      .. ARGV[a + 3] .. moment .. error .. ' ' .. content, 'PX', ttl)
    claimed[record] = true
    if over and tonumber(over) >= tonumber(since) then verdict = 4 end
  end
  verdicts[i] = verdict
end
return verdicts
