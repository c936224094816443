-- The policy and the question, unpacked from one argument. Twin: src/limit/policy.rs; packed by src/store/redis/script.rs.
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

local rate, capacity, window, window_limit, width, trip_point, cooldown, algorithm, while_open_window, shadow, cost, at, looks, hand_on =
  struct.unpack('<dddddddBBBddBB', ARGV[turn])
while_open_window = while_open_window == 1

local token_key, window_key = KEYS[key], algorithm ~= TOKEN_BUCKET and KEYS[key + 1]
key = key + (window_key and 2 or 1)
local exact = window_key and width == 0
local sliced = window_key and width > 0
