-- The token bucket. Twin: src/limit/bucket.rs.

tokens = min(tokens + (now - min(refilled_at, now)) * rate / US, capacity)

local bucket_wait = 0
if tokens < cost - TOLERANCE then bucket_wait = cost > capacity and NEVER or ceil((cost - tokens) * US / rate) end
