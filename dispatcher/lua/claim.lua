#!lua flags=allow-oom
-- claim: makes the records of taken entries say who delivers them now, so that no two do.
--
-- KEYS  1 stream, then two per entry: record, resolved:<incident>
-- ARGV  1 group, 2 consumer, 3 TTL of records in ms, then six per entry:
--       id, its delivery count, failures so far, first_at, event time in ms of a firing ("" for a resolution), "1" to force
-- Returns one integer per entry:
--       1 deliver: the record is mine; 2 duplicate: another copy was delivered, record untouched;
--       3 look again: another copy is in flight, record untouched; 4 superseded by a resolution: the record is mine;
--       5 not pending under me with this count: not mine to touch
local stream, group, consumer, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local function pending(id)
  return redis.call('XPENDING', stream, group, id, id, 1)[1]
end

local verdicts = {}
for i = 1, (#KEYS - 1) / 2 do
  local record, resolved, a = KEYS[2 * i], KEYS[2 * i + 1], 6 * i - 2
  local id, deliveries, attempts, first_at, since = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local force, verdict = ARGV[a + 5] == '1', 1
  local mine = pending(id)
  if not mine or mine[2] ~= consumer or mine[4] ~= tonumber(deliveries) then
    verdict = 5
  else
    local known = redis.call('GET', record)
    local state, holder, rest
    if known then state, holder, rest = string.match(known, '^(%S+) (%S+) %S+ %S+ %S+ (.*)$') end
    if state == 'delivered' and not force then
      verdict = 2
    elseif state == 'in_flight' and holder ~= id and pending(holder) then
      verdict = 3
    else
      local status, kept, error = '-', '-', ''
      if rest then status, kept, error = string.match(rest, '^(%S+) %S+ %S+ %S+ (%S+) (.*)$') end
      redis.call('SET', record, table.concat({ 'in_flight', id, deliveries, consumer, attempts, status, first_at, now,
        '0', kept, error }, ' '), 'PX', ttl)
      local over = since ~= '' and not force and redis.call('GET', resolved)
      if over and tonumber(over) >= tonumber(since) then verdict = 4 end
    end
  end
  verdicts[i] = verdict
end
return verdicts
