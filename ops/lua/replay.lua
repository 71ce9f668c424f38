#!lua flags=allow-oom
-- replay: moves dead letters back to the queue, with a fresh attempt count. Oldest first; stops when the queue is full.
--
-- redis-cli --eval replay.lua '{redispatch:pager}:stream' '{redispatch:pager}:dead' '{redispatch:pager}:ledger' \
--   '{redispatch:pager}:retry' , 100 100000 '' [id ...]
-- KEYS  1 stream, 2 dead, 3 ledger, 4 retry, all of one destination
-- ARGV  1 how many at most, 2 queue.max_depth, 3 "force" to send again what was delivered meanwhile, else "",
--       then the ids of the dead letters, or none for the oldest
-- Returns { moved, not found, "full" or "" }
local stream, dead, ledger, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tag = string.match(stream or '', '^(.*:)stream$')
if not tag or dead ~= tag .. 'dead' or ledger ~= tag .. 'ledger' or retry ~= tag .. 'retry' or #ARGV < 3 then
  return redis.error_reply('ERR usage: stream dead ledger retry , most max_depth force|"" [id ...]')
end
local most, max_depth, force = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == 'force'
if not most or not max_depth then return redis.error_reply('ERR the first two arguments must be numbers') end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local depth = redis.call('XLEN', stream) + redis.call('ZCARD', retry)
local moved, missing = 0, 0

local letters, seen = {}, {}
if #ARGV == 3 then
  letters = redis.call('XRANGE', dead, '-', '+', 'COUNT', most)
else
  for i = 4, math.min(#ARGV, most + 3) do
    local id = ARGV[i]
    local letter = redis.call('XRANGE', dead, id, id, 'COUNT', 1)[1]
    if letter and letter[1] == id and not seen[id] then letters[#letters + 1] = letter else missing = missing + 1 end
    seen[id] = true
  end
end

for _, letter in ipairs(letters) do
  if depth >= max_depth then return { moved, missing, 'full' } end
  local f = {}
  for i = 1, #letter[2], 2 do f[letter[2][i]] = letter[2][i + 1] end
  local entry = { 'key', f.key or '', 'alert', f.alert or '', 'attempt', '0', 'first_at', now, 'replay_of', letter[1] }
  if force then entry[11], entry[12] = 'force', '1' end
  if f.object then entry[#entry + 1], entry[#entry + 2] = 'object', f.object end
  redis.call('XADD', stream, '*', unpack(entry))
  redis.call('HINCRBY', ledger, 'replayed', 1)
  redis.call('XDEL', dead, letter[1])
  moved, depth = moved + 1, depth + 1
end
return { moved, missing, '' }
