#!lua flags=allow-oom
-- list: dead letters, oldest first, without their alerts. One call looks at 10000 of them, or 16 MiB, at most.
--
-- redis-cli --eval list.lua '{redispatch:pager}:dead' , 20 [from [reason [key]]]
-- KEYS  1 dead
-- ARGV  1 how many at most, 2 first id, "-" or none for the oldest, 3 only this reason, 4 only this key; "" is any
-- Returns the id to go on from or "", then per letter "id key reason status attempts error"
local LOOK_AT, BYTES, PAGE = 10000, 16777216, 20
local dead, most, from, reason, key = KEYS[1], tonumber(ARGV[1]), ARGV[2] or '-', ARGV[3] or '', ARGV[4] or ''
if not string.match(dead or '', ':dead$') or not most then
  return redis.error_reply('ERR usage: dead , most [from [reason [key]]]')
end
if from == '' then from = '-' end
local rows, seen, bytes = { '' }, 0, 0
while seen < LOOK_AT and bytes < BYTES do
  local page = redis.call('XRANGE', dead, from, '+', 'COUNT', PAGE)
  for _, letter in ipairs(page) do
    if #rows > most then rows[1] = letter[1]; return rows end
    local f = {}
    for i = 1, #letter[2], 2 do f[letter[2][i]] = letter[2][i + 1] end
    if (reason == '' or f.reason == reason) and (key == '' or f.key == key) then
      rows[#rows + 1] = table.concat({ letter[1], f.key or '', f.reason or '', f.status or '', f.attempts or '',
        f.error or '' }, ' ')
    end
    from, bytes = '(' .. letter[1], bytes + #(f.alert or '')
  end
  if #page < PAGE then return rows end
  seen = seen + PAGE
end
rows[1] = from
return rows
