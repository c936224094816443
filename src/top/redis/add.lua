-- Adds counts to one minute: KEYS[1] its sorted set; ARGV[1] members kept, ARGV[2] seconds kept, ARGV[3…] counts and members.
-- Those that come least go, so that a minute stays small however many processes add to it.
for i = 3, #ARGV, 2 do redis.call('ZINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -ARGV[1] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[2])
