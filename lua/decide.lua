-- The decision, the retry time and the charge, all in memory. Twin: src/limit/decide.rs.

local BUCKET, WINDOW, COST_EXCEEDS_LIMIT = 1, 2, 3
local reason, wait, charged = 0, 0, cost
local bucket_refuses = bucket_counts and bucket_wait > 0
local window_refuses = window_counts and window_wait > 0
load_current = load_current + cost

if bucket_refuses or window_refuses then
  reason, charged = bucket_refuses and BUCKET or WINDOW, 0
  if algorithm == TOKEN_BUCKET then
    wait = bucket_wait
  elseif algorithm == SLIDING_WINDOW then
    wait = window_wait
  else
    wait = max(bucket_wait, window_wait)
    if trip_point > 0 then
      local early = max(bucket_wait, open_until - now)
      local later = now + early
      local later_second = floor(later / US)
      local later_share = 1 - (later - later_second * US) / US
      local load = 0
      if later_second == second then
        load = load_current + load_previous * later_share
      elseif later_second == second + 1 then
        load = load_current * later_share
      end
      if load > trip_point + TOLERANCE then early = max(early, (second + 2) * US - now) end
      wait = min(wait, early)
    end
    if while_open_window and (trip_point == 0 or now + window_wait < open_until) then wait = min(wait, window_wait) end
  end
  if wait ~= 0 then wait = wait + lacking end
elseif charged > 0 and algorithm ~= SLIDING_WINDOW then
  if bucket_counts then
    tokens = tokens - charged
  else
    tokens = max(min(tokens, 0), tokens - charged)
  end
end

if never then
  reason, wait = COST_EXCEEDS_LIMIT, NEVER
  bucket_refuses, window_refuses = algorithm ~= SLIDING_WINDOW and asked > capacity, algorithm ~= TOKEN_BUCKET and asked > window_limit
end

local missing_tokens = capacity - tokens
local bucket_reset_after = missing_tokens <= TOLERANCE and 0 or ceil(missing_tokens * US / rate)
