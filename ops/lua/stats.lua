#!lua flags=allow-oom
-- stats: what waits, what died and why, and whether anything is sent.
--
-- redis-cli --eval stats.lua '{redispatch:pager}:stream' '{redispatch:pager}:retry' '{redispatch:pager}:dead' \
--   '{redispatch:pager}:gate'
-- KEYS  1 stream, 2 retry, 3 dead, 4 gate, all of one destination
-- ARGV  none
-- Returns lines. Reasons are those of the oldest 2000 dead letters, or of 16 MiB of them.
local USAGE = "stats.lua 'D:stream' 'D:retry' 'D:dead' 'D:gate'"
local stream, retry, dead, gate = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local GROUP, LOOK_AT, BYTES, PAGE = 'dispatchers', 2000, 16777216, 20
local tag = string.match(stream or '', '^({.+}:)stream$')
if not tag or retry ~= tag .. 'retry' or dead ~= tag .. 'dead' or gate ~= tag .. 'gate' or #ARGV > 0 then
  local usage = string.gsub(USAGE, 'D:', string.match(KEYS[1] or '', '^{.+}:') or '{redispatch:pager}:')
  return redis.error_reply('ERR these are not the keys or arguments - usage: redis-cli --eval ' .. usage)
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function read_by()
  if redis.call('EXISTS', stream) == 0 then return 0, 0 end
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for i = 1, #flat, 2 do info[flat[i]] = flat[i + 1] end
    if info.name == GROUP then return info.pending, info.consumers end
  end
  return 0, 0
end

local function reasons()
  local counts, names, from, seen, bytes, page = {}, {}, '-', 0, 0, nil
  repeat
    page = redis.call('XRANGE', dead, from, '+', 'COUNT', PAGE)
    for _, letter in ipairs(page) do
      for i = 1, #letter[2], 2 do
        local name, value = letter[2][i], letter[2][i + 1]
        bytes = bytes + #value
        if name == 'reason' then counts[value] = (counts[value] or 0) + 1 end
      end
      from = '(' .. letter[1]
    end
    seen = seen + #page
  until #page < PAGE or seen >= LOOK_AT or bytes >= BYTES
  for name, count in pairs(counts) do names[#names + 1] = name .. ' ' .. count end
  table.sort(names)
  return table.concat(names, ', '), seen
end

local function seconds(ms) return string.format('%.0f s', ms / 1000) end

local pending, consumers = read_by()
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local due = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')[2]
local letters, told, seen = redis.call('XLEN', dead), reasons()
local state, reason, till = unpack(redis.call('HMGET', gate, 'state', 'reason', 'until'))
local entries, retries = redis.call('XLEN', stream), redis.call('ZCARD', retry)
return {
  'depth         ' .. entries + retries,
  'in flight     ' .. pending,
  'retrying      ' .. retries .. (due and ', the next due in ' .. seconds(math.max(0, due - now)) or ''),
  'oldest        ' .. (oldest and seconds(now - string.match(oldest[1], '^%d+')) or '-'),
  'dead letters  ' .. letters .. (letters > 0 and ': ' .. told or '') .. (seen < letters and ' of ' .. seen or ''),
  'gate          ' .. (state or 'open') .. (till and ' for ' .. seconds(math.max(0, till - now)) or '')
    .. ((reason or '') ~= '' and ' (' .. string.gsub(reason, '%c', '?') .. ')' or ''),
  'consumers     ' .. consumers,
}
