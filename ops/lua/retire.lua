#!lua flags=allow-oom
-- retire: moves what a removed destination still has to its dead letters, reason `removed`. Stops at max_dead.
--
-- redis-cli --eval retire.lua '{redispatch:pager}:stream' '{redispatch:pager}:retry' '{redispatch:pager}:dead' \
--   '{redispatch:pager}:ledger' , dispatchers 60000 100000 100
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger, all of one destination, then one record per id or member, or none
-- ARGV  1 group, 2 dispatcher.visibility_timeout in ms, 3 queue.max_dead, 4 how many at most,
--       then ids of entries and members of `retry`, or none for the oldest; without records those stay as they are
-- Returns { moved, left alone: pending under a consumer that was heard of within the timeout, "full" or "", the same in
--       words }
-- What waits in `retry` with a reason keeps it.
local USAGE = "retire.lua 'D:stream' 'D:retry' 'D:dead' 'D:ledger' , dispatchers 60000 100000 100"
local stream, retry, dead, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, timeout, max_dead, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local tag = string.match(stream or '', '^({.+}:)stream$')
if not tag or retry ~= tag .. 'retry' or dead ~= tag .. 'dead' or ledger ~= tag .. 'ledger' or (most or 0) < 1 then
  local usage = string.gsub(USAGE, 'D:', string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:')
  return redis.error_reply('ERR these are not the keys or arguments - usage: redis-cli --eval ' .. usage)
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local function has_group()
  if redis.call('EXISTS', stream) == 0 then return false end
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for i = 1, #flat, 2 do
      if flat[i] == 'name' and flat[i + 1] == group then return true end
    end
  end
  return false
end
local grouped = has_group()

local function oldest()
  local found = {}
  for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', most)) do found[#found + 1] = entry[1] end
  if #found == most then return found end
  for _, member in ipairs(redis.call('ZRANGE', retry, 0, most - #found - 1)) do found[#found + 1] = member end
  return found
end

-- The record of what is moved here; that of another copy, or of a delivery that has ended, stays.
local function remember(record, id)
  local text = record and redis.call('GET', record)
  local state, holder, deliveries, attempts, status, first_at, rest =
    string.match(text or '', '^(%S+) (%S+) (%S+) %S+ (%S+) (%S+) (%S+) %S+ %S+ (.*)$')
  if holder ~= id or state == 'delivered' or state == 'dead' then return end
  redis.call('SET', record, 'dead ' .. id .. ' ' .. deliveries .. ' - ' .. attempts .. ' ' .. status .. ' ' .. first_at
    .. ' ' .. now .. ' 0 ' .. rest, 'KEEPTTL')
end

local function optional(f)
  local extra = f.object and { 'object', f.object } or {}
  if f.trace then extra[#extra + 1], extra[#extra + 2] = 'trace', f.trace end
  return unpack(extra)
end

local function bury(record, id, fields, deliveries)
  local f = {}
  for i = 1, #fields, 2 do f[fields[i]] = fields[i + 1] end
  redis.call('XADD', dead, '*', 'key', f.key or '', 'reason', f.reason or 'removed', 'error', f.error or '',
    'status', f.status ~= '-' and f.status or '', 'attempts', f.attempt or '0', 'deliveries', deliveries,
    'first_at', f.first_at or now, 'died_at', now, 'alert', f.alert or table.concat(fields, ' '),
    optional(f))
  remember(record, id)
  if not f.key then redis.call('HINCRBY', ledger, 'accepted', 1) end
  redis.call('HINCRBY', ledger, 'died', 1)
  redis.call('HINCRBY', ledger, 'died_' .. (f.reason or 'removed'), 1)
end

-- As take has it: what did not come from settle is kept as it is.
local function fields_of(member, at)
  local sound, fields = pcall(cmsgpack.unpack, string.sub(member, at + 1))
  sound = sound and type(fields) == 'table' and #fields > 0 and #fields % 2 == 0
  for i = 1, sound and #fields or 0 do sound = sound and type(fields[i]) == 'string' end
  return sound and fields or { 'alert', member }
end

local function move_entry(record, id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if not entry then return 0, 0 end
  local pending = grouped and redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending and pending[3] < timeout then return 0, 1 end
  bury(record, id, entry[2], pending and pending[4] or 0)
  if pending then redis.call('XACK', stream, group, id) end
  redis.call('XDEL', stream, id)
  return 1, 0
end

local function move_member(record, member, at)
  if not redis.call('ZSCORE', retry, member) then return 0, 0 end
  bury(record, string.sub(member, 1, at - 1), fields_of(member, at), 0)
  redis.call('ZREM', retry, member)
  return 1, 0
end

local chosen = #ARGV > 4 and { unpack(ARGV, 5) } or oldest()
local moved, left = 0, 0

local function answer(full)
  local told = string.format('moved %d to the dead letters, left %d that are in work', moved, left)
  return { moved, left, full, told .. (full ~= '' and '; stopped, the dead letters are at their cap' or '') }
end

for i = 1, math.min(#chosen, most) do
  if redis.call('XLEN', dead) >= max_dead then return answer('full') end
  local at = string.find(chosen[i], ' ', 1, true)
  local one, alone
  if at or not string.find(chosen[i], '^%d+%-%d+$') then
    one, alone = move_member(KEYS[4 + i], chosen[i], at or 0)
  else
    one, alone = move_entry(KEYS[4 + i], chosen[i])
  end
  moved, left = moved + one, left + alone
end
return answer('')
