#!lua flags=allow-oom
-- rights: which of the given commands the user of this connection may not run.
--
-- KEYS  none: nothing is run, so nothing is touched
-- ARGV  1 commands as JSON, each an array of words, its keys among them
-- Returns the places of those that are refused, the first is 1
local refused = {}
for place, words in ipairs(cjson.decode(ARGV[1])) do
  if not redis.acl_check_cmd(unpack(words)) then refused[#refused + 1] = place end
end
return refused
