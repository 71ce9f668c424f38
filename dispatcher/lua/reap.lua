#!lua flags=allow-oom
-- reap: removes consumers that own nothing and have been silent, in one step, so that nothing pending goes with one.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 shortest silence in ms, 3 the only consumer to look at, or "" for all
-- Returns the names removed.
local stream, group, silence, only = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
if redis.call('EXISTS', stream) == 0 then return {} end
local removed = {}
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local info = {}
  for i = 1, #flat, 2 do info[flat[i]] = flat[i + 1] end
  if info.pending == 0 and info.idle >= silence and (only == '' or only == info.name) then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, info.name)
    removed[#removed + 1] = info.name
  end
end
return removed
