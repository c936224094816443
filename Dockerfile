# Weir as an image: one binary, no shell, no root. deploy/prove-dockerfile.sh runs these steps without an engine.
#
#   docker build --build-arg WEIR_COMMIT=$(git rev-parse HEAD) -t weir .
#   docker run -p 127.0.0.1:8080:8080 -v ./config:/etc/weir:ro -v weir:/var/lib/weir weir
#
# Mount the directory of limit.yaml, not the file: a file that is replaced outside stays the old one inside. Whoever asks from outside the
# container is no loopback: identity.trusted_peers must name the network that may say who the user is.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
# First what changes seldom: with stand-ins for the sources this layer holds every dependency, compiled.
COPY Cargo.toml Cargo.lock ./
COPY loadtest/Cargo.toml loadtest/
RUN mkdir -p src loadtest/src \
    && echo 'fn main() {}' | tee build.rs src/main.rs > loadtest/src/main.rs \
    && touch src/lib.rs loadtest/src/lib.rs \
    && cargo build --release --locked --bin weir
COPY build.rs ./
COPY lua lua
COPY src src
ARG WEIR_COMMIT=
# The stand-ins are newer than the sources that replace them; without a touch cargo would keep what it made of those.
RUN touch build.rs src/main.rs src/lib.rs \
    && WEIR_COMMIT="$WEIR_COMMIT" cargo build --release --locked --bin weir \
    && strip --strip-debug -o weir target/release/weir \
    && ./weir --version
COPY config config
RUN ./weir check-config config/limit.yaml \
    && install -D -m 0755 weir image/usr/local/bin/weir \
    && install -D -m 0644 -t image/etc/weir config/limit.yaml config/limit.schema.json \
    && install -d -m 0700 -o 65532 -g 65532 image/var/lib/weir

# The C library, and nothing that could be run but the one binary. Its user nonroot is 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /build/image/usr /usr
COPY --from=build /build/image/etc /etc
COPY --from=build --chown=65532:65532 /build/image/var/lib/weir /var/lib/weir
ENV WEIR_BIND=0.0.0.0:8080 WEIR_CONFIG=/etc/weir/limit.yaml WEIR_DATA_DIR=/var/lib/weir WEIR_URL=http://127.0.0.1:8080
USER nonroot
EXPOSE 8080
VOLUME /var/lib/weir
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/usr/local/bin/weir", "health"]
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["serve"]
