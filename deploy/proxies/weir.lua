-- Asks Weir whether a request may pass: http-request lua.weir URL open|closed
--
-- Nothing that the client sent is passed on but its method, path and address, so no header of its own can say who it is. If HAProxy
-- knows the user, set the variable txn.weir_user before, and name X-User-ID in identity.auth_headers.

-- How long the way to Weir may take, ms: longer than the section for it in haproxy.cfg allows, which answers first.
local TIMEOUT_MS = 3000

-- Headers of Weir's that say something about its connection and not about its answer.
local HOP = { ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["date"] = true }

local function away(txn, failure)
    txn:set_var("txn.weir_away", 1)
    if failure == "open" then
        return
    end
    local reply = txn:reply({ status = 503, reason = "Service Unavailable" })
    reply:add_header("Retry-After", "1")
    reply:add_header("Cache-Control", "no-store")
    txn:done(reply)
end

core.register_action("weir", { "http-req" }, function(txn, url, failure)
    local headers = {
        ["x-forwarded-for"] = { txn.f:src() },
        ["x-original-method"] = { txn.f:method() },
        ["x-original-uri"] = { txn.f:pathq() },
    }
    local user = txn:get_var("txn.weir_user")
    if user then
        headers["x-user-id"] = { user }
    end
    local asked, answer = pcall(function()
        return core.httpclient():get({ url = url, headers = headers, timeout = TIMEOUT_MS })
    end)
    -- An answer without this header is nobody's but HAProxy's own.
    if not asked or not answer or not answer.headers or not answer.headers["x-weir-status"] then
        return away(txn, failure)
    end
    if answer.status == 200 then
        local policy, left = answer.headers["ratelimit-policy"], answer.headers["ratelimit"]
        if policy and left then
            txn:set_var("txn.weir_policy", policy[0])
            txn:set_var("txn.weir_left", left[0])
        end
        return
    end
    local reply = txn:reply({ status = answer.status, reason = answer.reason, body = answer.body })
    for name, values in pairs(answer.headers) do
        if not HOP[name] then
            for _, value in pairs(values) do
                reply:add_header(name, value)
            end
        end
    end
    txn:done(reply)
end, 2)
