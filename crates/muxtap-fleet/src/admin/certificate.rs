//! The fleet's certificates: an authority of its own, and the server's certificate.
//!
//! Members trust the authority alone. Its key stays in the folder, so that the server's certificate
//! can be renewed without a change at any member.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use muxtap_api::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

const DAY: Duration = Duration::from_secs(86_400);
/// The authority's lifetime in days.
const AUTHORITY_DAYS: u32 = 3_650;
/// The server certificate's lifetime in days.
pub const SERVER_DAYS: u32 = 825;
/// The name of the authority. It is the issuer in all server certificates, so it must not change.
const AUTHORITY: &str = "muxtap fleet";
/// The longest list of names in the certificate.
pub const NAMES: usize = 32;

/// An authority, as PEM.
pub(super) struct Authority {
    pub(super) cert: String,
    pub(super) key: String,
}

/// A server's certificate, followed by its authority's, and its key, as PEM.
pub(super) struct Server {
    pub(super) chain: String,
    pub(super) key: String,
}

/// Checks a name for the server's certificate: a DNS name or an address.
pub fn check_host_name(name: &str) -> Result<()> {
    let is_label = |label: &str| {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_valid)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.parse::<IpAddr>().is_ok() || (name.len() <= 253 && name.split('.').all(is_label)) {
        return Ok(());
    }
    Err(Error::invalid(format!("invalid host name: {name:?}; expected a DNS name or an IP address")))
}

/// Generates an authority.
pub(super) fn authority() -> Result<Authority> {
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let cert = authority_params()?.self_signed(&key).map_err(|error| failed(&error))?;
    Ok(Authority { cert: cert.pem(), key: key.serialize_pem() })
}

/// Generates a server's certificate for these names, signed by the authority.
pub(super) fn server(authority: &Authority, names: &[String]) -> Result<Server> {
    let unusable = |error| Error::invalid(format!("invalid key of the authority: {error}; expected PEM"));
    let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(&authority.key).map_err(unusable)?);
    let mut params = CertificateParams::new(names.to_vec()).map_err(|error| failed(&error))?;
    params.distinguished_name.push(DnType::CommonName, "muxtap fleet server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, SERVER_DAYS);
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let cert = params.signed_by(&key, &issuer).map_err(|error| failed(&error))?;
    Ok(Server { chain: format!("{}{}", cert.pem(), authority.cert), key: key.serialize_pem() })
}

fn authority_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| failed(&error))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    valid_for(&mut params, AUTHORITY_DAYS);
    Ok(params)
}

/// Sets the lifetime, from a day ago: members' clocks may be behind.
fn valid_for(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - DAY).into(), (now + DAY * days).into());
}

fn failed(error: &rcgen::Error) -> Error {
    Error::internal(format!("cannot generate a certificate: {error}"))
}
