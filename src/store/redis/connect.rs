//! Opening connections: with which name and password, over what, and what of a connection tells that it has ended.
//!
//! Password and certificates are read from their files for each new connection, so that what was changed while running counts from the
//! next one on; a server that no longer takes the old password has its connections dropped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates,
};
use tokio::time::timeout;

use super::url::{Address, Place};

/// The longest that connecting may take. Whoever asked for it may have given up by then: a server that is farther away than a deadline is
/// reached all the same, by the next who asks.
const CONNECTING: Duration = Duration::from_secs(1);

/// Files with what is secret, or may change while running.
#[derive(Debug, Clone, Default)]
pub struct RedisFiles {
    /// The password; before the one in the URL.
    pub password: Option<PathBuf>,
    /// The password of the Sentinels.
    pub sentinel_password: Option<PathBuf>,
    /// Certificates of the authorities that are believed, PEM; the system's when it is not said.
    pub ca: Option<PathBuf>,
    /// This process's own certificate and its key, PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A connection that is open, as far as is known.
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    closed: Arc<AtomicBool>,
}

impl Open {
    /// Whether the other end has closed it: an idle one ends without anybody asking.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Who a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Server,
    Sentinel,
}

/// Opens connections to the servers of one deployment.
pub(super) struct Connector {
    place: Place,
    files: RedisFiles,
}

impl Connector {
    pub(super) fn new(place: Place, files: RedisFiles) -> Self {
        if place.tls {
            // The first to say so decides; a program that has chosen before keeps its choice.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { place, files }
    }

    /// A new connection.
    pub(super) async fn open(&self, address: &Address, to: To) -> RedisResult<Open> {
        let opened = timeout(CONNECTING, self.connect(address, to)).await;
        opened.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }

    async fn connect(&self, address: &Address, to: To) -> RedisResult<Open> {
        let closed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&closed);
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None).set_push_sender(
            move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                if push.kind == PushKind::Disconnection {
                    told.store(true, Ordering::Relaxed);
                }
                Ok(())
            },
        );
        // RESP3 (Redis 6 and later): only there the library says that a connection has ended.
        let client = self.client(address, to, ProtocolVersion::RESP3).await?;
        Ok(Open { connection: client.get_multiplexed_async_connection_with_config(&config).await?, closed })
    }

    /// A new connection to listen on.
    pub(super) async fn listen(&self, address: &Address) -> RedisResult<PubSub> {
        self.client(address, To::Server, ProtocolVersion::RESP2).await?.get_async_pubsub().await
    }

    async fn client(&self, address: &Address, to: To, protocol: ProtocolVersion) -> RedisResult<Client> {
        let address = match address.clone() {
            Address::Tcp { host, port } if self.place.tls => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host, port),
            Address::Unix(path) => ConnectionAddr::Unix(path),
        };
        let mut settings = RedisConnectionInfo::default().set_protocol(protocol).set_lib_name("weir", env!("CARGO_PKG_VERSION"));
        let (user, password) = match to {
            To::Server => (self.place.user.as_ref(), secret(self.files.password.as_ref(), self.place.password.as_ref()).await?),
            To::Sentinel => (None, secret(self.files.sentinel_password.as_ref(), None).await?),
        };
        if let Some(password) = password {
            settings = settings.set_password(password);
            if let Some(user) = user {
                settings = settings.set_username(user);
            }
        }
        if to == To::Server {
            settings = settings.set_db(self.place.db);
        }
        let info = address.into_connection_info()?.set_redis_settings(settings);
        if self.place.tls { Client::build_with_tls(info, self.certificates().await?) } else { Client::open(info) }
    }

    async fn certificates(&self) -> RedisResult<TlsCertificates> {
        let client_tls = match &self.files.certificate {
            Some((certificate, key)) => Some(ClientTlsConfig { client_cert: read(certificate).await?, client_key: read(key).await? }),
            None => None,
        };
        let root_cert = match &self.files.ca {
            Some(ca) => Some(read(ca).await?),
            None => None,
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

async fn secret(file: Option<&PathBuf>, otherwise: Option<&String>) -> RedisResult<Option<String>> {
    let Some(file) = file else { return Ok(otherwise.cloned()) };
    let text = String::from_utf8_lossy(&read(file).await?).trim_end_matches(['\r', '\n']).to_owned();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

async fn read(file: &PathBuf) -> RedisResult<Vec<u8>> {
    tokio::fs::read(file).await.map_err(|error| {
        let detail = format!("{}: {error}", file.display());
        RedisError::from((redis::ErrorKind::InvalidClientConfig, "a file cannot be read", detail))
    })
}
