-- The token bucket. Twin: src/limit/bucket.rs.

local function bucket_refilled(tokens, refilled_at, now)
  local gained = (now - refilled_at) * rate / US
  return math.min(tokens + gained, capacity)
end

local function bucket_wait(tokens)
  if tokens >= cost - TOLERANCE then return 0 end
  if cost > capacity then return NEVER end
  return math.ceil((cost - tokens) * US / rate)
end

local function bucket_room(tokens)
  return math.max(math.floor(tokens + TOLERANCE), 0)
end

local function bucket_reset_after(tokens)
  local missing = capacity - tokens
  if missing <= TOLERANCE then return 0 end
  return math.ceil(missing * US / rate)
end
