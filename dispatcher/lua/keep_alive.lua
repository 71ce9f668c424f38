#!lua flags=allow-oom
-- keep_alive: tells the group that entries are still in work, without counting a delivery.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer, then the ids in work
-- Returns { ids that are pending under somebody else or nobody, ids whose entry has vanished from the stream }
-- A vanished entry stays pending (XCLAIM would remove it), so that its settlement still counts.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local gone, vanished = {}, {}
for i = 3, #ARGV do
  local id = ARGV[i]
  if #redis.call('XPENDING', stream, group, id, id, 1, consumer) == 0 then
    gone[#gone + 1] = id
  elseif #redis.call('XRANGE', stream, id, id) == 0 then
    vanished[#vanished + 1] = id
  else
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
  end
end
return { gone, vanished }
