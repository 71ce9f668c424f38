#!lua flags=allow-oom
-- ledger: both sums, which must balance at any instant, and what they can't explain, which must be 0.
--
-- redis-cli --eval ledger.lua '{redispatch:pager}:stream' '{redispatch:pager}:retry' '{redispatch:pager}:dead' \
--   '{redispatch:pager}:ledger'
-- KEYS  1 stream, 2 retry, 3 dead, 4 ledger, all of one destination
-- ARGV  none
-- Returns lines
local USAGE = "ledger.lua 'D:stream' 'D:retry' 'D:dead' 'D:ledger'"
local stream, retry, dead, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tag = string.match(stream or '', '^({.+}:)stream$')
if not tag or retry ~= tag .. 'retry' or dead ~= tag .. 'dead' or ledger ~= tag .. 'ledger' or #ARGV > 0 then
  local usage = string.gsub(USAGE, 'D:', string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:')
  return redis.error_reply('ERR these are not the keys or arguments - usage: redis-cli --eval ' .. usage)
end
local names = { 'accepted', 'replayed', 'delivered', 'duplicate', 'superseded', 'died', 'lost', 'discarded' }
local values, l = redis.call('HMGET', ledger, unpack(names)), {}
for i, name in ipairs(names) do l[name] = tonumber(values[i] or 0) end
l.depth, l['dead letters'] = redis.call('XLEN', stream) + redis.call('ZCARD', retry), redis.call('XLEN', dead)

local function sum(...)
  local total, words = 0, {}
  for _, name in ipairs({ ... }) do
    total, words[#words + 1] = total + l[name], name .. ' ' .. string.format('%.0f', l[name])
  end
  return total, table.concat(words, ' + ')
end
local came, came_told = sum('accepted', 'replayed')
local went, went_told = sum('delivered', 'duplicate', 'superseded', 'died', 'lost', 'depth')
local moved, moved_told = sum('replayed', 'discarded', 'dead letters')
return {
  came_told, string.format('  is to be %s', went_told), string.format('  missing %.0f', came - went),
  'died ' .. string.format('%.0f', l.died), '  is to be ' .. moved_told,
  string.format('  missing %.0f', l.died - moved),
  string.format('unaccounted %.0f', math.abs(came - went) + math.abs(l.died - moved)),
}
