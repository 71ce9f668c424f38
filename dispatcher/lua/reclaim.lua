#!lua flags=allow-oom
-- reclaim: takes entries from consumers that have been silent for too long.
--
-- KEYS  1 stream, 2 retry, 3 gate, 4 ledger
-- ARGV  1 group, 2 consumer, 3 longest idle time in ms, 4 how many at most, 5 id to start from ("-" for the first),
--       6 id of the suspect to take alone, or "", then the ids in work here
-- Returns { gate's state or "", id to start the next round from, id of a suspect or "", entries lost,
--           { { id, { field, value, ... }, delivery count }, ... } }
-- A suspect was reclaimed before and its worker died again: it is taken only when named, its count is not touched.
local stream, retry, gate, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, idle, most, start, alone = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local in_work = {}
for i = 7, #ARGV do in_work[ARGV[i]] = true end

-- Only what the ledger is short of: somebody else may have booked it before.
local function book_lost(found)
  local l = redis.call('HMGET', ledger, 'accepted', 'replayed', 'delivered', 'duplicate', 'superseded', 'died', 'lost')
  for i = 1, 7 do l[i] = tonumber(l[i] or 0) end
  local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
  local short = math.min(found, l[1] + l[2] - l[3] - l[4] - l[5] - l[6] - l[7] - depth)
  if short > 0 then redis.call('HINCRBY', ledger, 'lost', short) end
end

local silent = redis.call('XPENDING', stream, group, 'IDLE', idle, start, '+', most)
local taken, lost, suspect = {}, 0, ''
for _, p in ipairs(silent) do
  local id, deliveries = p[1], p[4]
  if not in_work[id] then
    if deliveries >= 2 and id ~= alone then
      if suspect == '' then suspect = id end
    elseif alone == '' or id == alone then
      local entry = redis.call('XCLAIM', stream, group, consumer, idle, id)[1]
      if entry then
        taken[#taken + 1] = { entry[1], entry[2], deliveries + 1 }
      else
        lost = lost + 1
      end
    end
  end
end
if lost > 0 then book_lost(lost) end
local following = #silent == most and '(' .. silent[#silent][1] or '-'
return { redis.call('HGET', gate, 'state') or '', following, suspect, lost, taken }
