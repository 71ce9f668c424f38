#!lua flags=allow-oom
-- discard: removes dead letters for good. All ids are looked up before the first is removed.
--
-- redis-cli --eval discard.lua '{redispatch:pager}:dead' '{redispatch:pager}:ledger' '{redispatch:pager}:objects' , \
--   id [id ...]
-- KEYS  1 dead, 2 ledger, 3 objects, all of one destination
-- ARGV  the ids of the dead letters
-- Returns how many were removed, then the names of their objects, which nobody refers to any more
local dead, ledger, objects = KEYS[1], KEYS[2], KEYS[3]
local tag = string.match(dead or '', '^(.*:)dead$')
if not tag or ledger ~= tag .. 'ledger' or objects ~= tag .. 'objects' or #ARGV == 0 then
  return redis.error_reply('ERR usage: dead ledger objects , id [id ...]')
end
local found = {}
for _, id in ipairs(ARGV) do
  local letter = redis.call('XRANGE', dead, id, id, 'COUNT', 1)[1]
  if letter and letter[1] == id then found[#found + 1] = letter end
end
local answer = { 0 }
for _, letter in ipairs(found) do
  if redis.call('XDEL', dead, letter[1]) == 1 then
    answer[1] = answer[1] + 1
    for i = 1, #letter[2], 2 do
      if letter[2][i] == 'object' then answer[#answer + 1] = letter[2][i + 1] end
    end
  end
end
for i = 2, #answer do redis.call('SREM', objects, answer[i]) end
if answer[1] > 0 then redis.call('HINCRBY', ledger, 'discarded', answer[1]) end
return answer
