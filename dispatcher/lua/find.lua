#!lua flags=allow-oom
-- find: takes entries that were handed out once and are pending under nobody (after XGROUP DELCONSUMER).
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer, 3 how many to look at, 4 id to start from ("-" for the first),
--       then id and delivery count of each entry in work here: these become mine again as they were, and are not returned
-- Returns { id to start the next round from, { { id, { field, value, ... }, delivery count }, ... } }
-- Raises NOGROUP.
local stream, group, consumer, most, start = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local in_work = {}
for i = 5, #ARGV, 2 do in_work[ARGV[i]] = ARGV[i + 1] end

local function last_delivered()
  if redis.call('EXISTS', stream) == 0 then return nil end
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for i = 1, #flat, 2 do info[flat[i]] = flat[i + 1] end
    if info.name == group then return info['last-delivered-id'] end
  end
  return nil
end

local last = last_delivered()
if not last then return { '-', {} } end
local taken = {}
local entries = redis.call('XRANGE', stream, start, last, 'COUNT', most)
for _, entry in ipairs(entries) do
  local id = entry[1]
  local free = #redis.call('XPENDING', stream, group, id, id, 1) == 0
  if free and in_work[id] then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'FORCE', 'RETRYCOUNT', in_work[id], 'JUSTID')
  elseif free then
    local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id, 'FORCE')[1]
    taken[#taken + 1] = { id, claimed[2], redis.call('XPENDING', stream, group, id, id, 1)[1][4] }
  end
end
return { #entries == most and '(' .. entries[#entries][1] or '-', taken }
