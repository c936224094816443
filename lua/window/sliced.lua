-- The sum of what was admitted in each slice of time: a hash, field = slice number, value = cost. Twin:
-- src/limit/window/sliced.rs.
--
-- The field `sum` holds the running total and which slices there are, so that none but the current one is read as long as
-- none has left.

local sliced_total, sliced_oldest, sliced_newest, sliced_expires
-- The cost of the slice of now.
local sliced_current
-- What has left: the fields, and what the rest adds up to.
local sliced_out, sliced_used
-- The slices that count by number, when the total had to be worked out anew.
local sliced_listed

-- The most slices that any policy makes, plus the one that is partly outside, with room for a lapse of the clock.
local SLICED_MOST = 2100

local function slice_of(time)
  return math.floor(time / width)
end

local function slice_leaves_at(number)
  return (number + 1) * width + window
end

local function sliced_recount(key, now, latest)
  sliced_total, sliced_oldest, sliced_newest, sliced_expires, sliced_current = 0, 0, 0, 0, 0
  sliced_listed = {}
  local size = redis.pcall('HLEN', key)
  if type(size) ~= 'number' or size > SLICED_MOST then
    corrupt = true
    return
  end
  local stored = size > 0 and redis.call('HGETALL', key) or {}
  local first = slice_of(now - window)
  for i = 1, #stored, 2 do
    local number = stored[i] ~= 'sum' and finite(stored[i])
    local units = number and finite(stored[i + 1])
    if units and units >= 1 and units == math.floor(units) and number == math.floor(number) and number >= first and number <= latest then
      sliced_listed[number] = units
      if sliced_total == 0 then sliced_oldest, sliced_newest = number, number end
      sliced_oldest, sliced_newest = math.min(sliced_oldest, number), math.max(sliced_newest, number)
      sliced_total = sliced_total + units
    end
  end
  sliced_current = sliced_listed[slice_of(now)] or 0
end

local function sliced_read(key, now, corrected)
  local stored = redis.pcall('HMGET', key, 'sum', string.format('%d', slice_of(now)))
  if not stored.err and not corrected then
    sliced_total, sliced_oldest, sliced_newest, sliced_expires = unpack_finite('<dddd', 4, stored[1])
    sliced_current = finite(stored[2]) or 0
    if sliced_total and sliced_newest - sliced_oldest <= SLICED_MOST then return end
  end
  sliced_recount(key, now, corrected and slice_of(now) or slice_of(now + US))
end

-- The costs of slices `from` … `to`, missing ones as 0.
local function sliced_range(key, from, to)
  local costs, fields = {}, {}
  for number = from, to do
    if sliced_listed then
      costs[#costs + 1] = sliced_listed[number] or 0
    else
      fields[#fields + 1] = string.format('%d', number)
    end
  end
  if #fields > 0 then
    costs = redis.call('HMGET', key, unpack(fields))
    for i = 1, #costs do costs[i] = finite(costs[i]) or 0 end
  end
  return costs, fields
end

local function sliced_assess(key, now)
  local first = slice_of(now - window)
  sliced_out, sliced_used = nil, sliced_total
  if sliced_total > 0 and sliced_oldest < first then
    if sliced_newest < first then
      sliced_out, sliced_used = 'all', 0
    else
      local costs
      costs, sliced_out = sliced_range(key, sliced_oldest, first - 1)
      for i = 1, #costs do sliced_used = sliced_used - costs[i] end
      sliced_oldest = first
    end
  end
  local empty_at = sliced_used > 0 and slice_leaves_at(sliced_newest) or nil
  local missing = sliced_used + cost - window_limit
  if missing <= 0 then return sliced_used, 0, empty_at end
  if cost > window_limit then return sliced_used, NEVER, empty_at end
  local costs = sliced_range(key, sliced_oldest, sliced_newest)
  for i = 1, #costs do
    missing = missing - costs[i]
    if missing <= 0 then return sliced_used, slice_leaves_at(sliced_oldest + i - 1) - now, empty_at end
  end
  return sliced_used, slice_leaves_at(sliced_newest) - now, empty_at
end

local function sliced_write(key, now, charged)
  if sliced_listed then
    redis.call('UNLINK', key)
    local fields = {}
    for number, units in pairs(sliced_listed) do
      fields[#fields + 1] = string.format('%d', number)
      fields[#fields + 1] = units
      if #fields == 1000 then
        redis.call('HSET', key, unpack(fields))
        fields = {}
      end
    end
    if #fields > 0 then redis.call('HSET', key, unpack(fields)) end
  elseif sliced_out == 'all' then
    redis.call('UNLINK', key)
    sliced_current = 0
  elseif sliced_out then
    redis.call('HDEL', key, unpack(sliced_out))
  end
  if sliced_out == 'all' or sliced_total == 0 then sliced_expires = 0 end
  if charged == 0 and not sliced_listed and not sliced_out then return end
  local number = slice_of(now)
  sliced_total = sliced_used + charged
  if charged > 0 then
    if sliced_used == 0 then sliced_oldest, sliced_newest = number, number end
    sliced_oldest, sliced_newest = math.min(sliced_oldest, number), math.max(sliced_newest, number)
  end
  if sliced_total == 0 then return end
  local expires = expiry(sliced_expires, slice_leaves_at(sliced_newest), now)
  local sum = struct.pack('<dddd', sliced_total, sliced_oldest, sliced_newest, expires)
  if charged > 0 then
    redis.call('HSET', key, 'sum', sum, string.format('%d', number), string.format('%d', sliced_current + charged))
  else
    redis.call('HSET', key, 'sum', sum)
  end
  if expires ~= sliced_expires then expire(key, expires, now) end
end
