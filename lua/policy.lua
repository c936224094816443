-- The policy and the question, unpacked from one argument. Twin: src/limit/policy.rs; packed by src/store/redis/script.rs.
--
-- Units: tokens a second, whole units, whole microseconds. `width` is 0 for an exact window. `at` is negative in service:
-- the time is then the server's own.

local US = 1000000
local TOLERANCE = 0.000001
local NEVER = math.huge
local HYBRID, TOKEN_BUCKET, SLIDING_WINDOW = 0, 1, 2
-- A state key outlives the time at which it equals no state by a minute, and by a spare so that expiry need not be renewed at
-- every decision.
local EXPIRY_MARGIN = 60 * US
local EXPIRY_SLACK = 60 * US

local rate, capacity, window, window_limit, width, trip_point, cooldown, algorithm, while_open_window, shadow, cost, at =
  struct.unpack('<dddddddBBBdd', ARGV[1])
while_open_window = while_open_window == 1
shadow = shadow == 1

local uses_window = algorithm ~= TOKEN_BUCKET

-- Set when something stored was no state of ours: it counts as missing, and is replaced by the next decision that writes.
local corrupt = false

-- The numbers packed in a field, or nothing when it holds anything else. `n` doubles.
local function unpack_finite(format, n, packed)
  if not packed then return nil end
  if #packed ~= 8 * n then
    corrupt = true
    return nil
  end
  local a, b, c, d, e, f, g = struct.unpack(format, packed)
  local sum = a + b + c + d + (n > 4 and e or 0) + (n > 5 and f or 0) + (n > 6 and g or 0)
  if sum - sum ~= 0 then
    corrupt = true
    return nil
  end
  return a, b, c, d, e, f, g
end

local function finite(text)
  local number = tonumber(text)
  if number and number - number == 0 then return number end
  if text then corrupt = true end
  return nil
end

-- When a key whose state equals no state at `as_new_at` should expire. Moved only when what it has is too short, or longer
-- than the state is worth.
local function expiry(expires_at, as_new_at, now)
  local least = as_new_at + EXPIRY_MARGIN
  local spare = EXPIRY_SLACK + math.floor((as_new_at - now) / 4)
  if expires_at >= least and expires_at <= least + 4 * spare then return expires_at end
  return least + spare
end

local function expire(key, expires_at, now)
  redis.call('PEXPIRE', key, string.format('%d', math.ceil((expires_at - now) / 1000)))
end
