-- Many decisions in one call, each on its own: this file opens the loop that end.lua closes. What stands between is one decision
-- read from top to bottom: each file is a stretch of it, in the order of script.rs, and they share their locals. `break`, outside of an
-- inner loop, ends a decision early. Functions are few on purpose: Lua makes each one anew at every call of a script, and the two
-- dozen of an earlier version took a quarter of the time.
--
-- ARGV: a question each. KEYS: all keys of the first question, then of the second, and so on: the subject's hash; its window, if its
-- policy has one; the hashes to look at. Returns an answer each: an error that is one question's own is that one's answer.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local call, pcall, format = redis.call, redis.pcall, string.format

local answers, key, server_time = {}, 1, nil
for turn = 1, #ARGV do
repeat

