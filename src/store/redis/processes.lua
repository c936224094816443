-- This process is alive: who else is?
--
-- KEYS[1] the processes, a sorted set: when each was last heard of, µs. ARGV[1] the name of this one. ARGV[2] 1 when it is about to go.
-- Returns how many have been heard of in the last ten seconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], string.format('%d', now), ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - 10000000))
-- A clock that was set back: what lies ahead would stay for ever.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%d', now), '+inf')
redis.call('EXPIRE', KEYS[1], 60)
return redis.call('ZCARD', KEYS[1])
