-- The policy and the question, unpacked from one argument. Twin: src/limit/policy.rs; packed by src/store/redis/script.rs.
--
-- The script is one decision read from top to bottom: each file is a stretch of it, in the order of src/store/redis/script.rs,
-- and they share their locals. Functions are few on purpose: Lua makes each one anew at every call of a script, and the two
-- dozen of an earlier version took a quarter of the time.
--
-- Units: tokens a second, whole units, whole microseconds. `width` is 0 for an exact window. `at` is negative in service:
-- the time is then the server's own.

local US = 1000000
local TOLERANCE = 0.000001
local NEVER = math.huge
local HYBRID, TOKEN_BUCKET, SLIDING_WINDOW = 0, 1, 2
-- A state key outlives the time at which it equals no state by this, plus a spare so that expiry need not be renewed at every
-- decision.
local EXPIRY_MARGIN = 60 * US

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local call, pcall, format = redis.call, redis.pcall, string.format

local rate, capacity, window, window_limit, width, trip_point, cooldown, algorithm, while_open_window, shadow, cost, at =
  struct.unpack('<dddddddBBBdd', ARGV[1])
while_open_window = while_open_window == 1

local token_key, window_key = KEYS[1], KEYS[2]
local exact = window_key and width == 0
local sliced = window_key and width > 0
