//! TLS: configured certificates, or one generated for this machine alone.
//!
//! The authority that signs a generated certificate is limited to the certificate's names, and its
//! key is discarded immediately: trusting it means trusting one certificate, and no other can ever
//! be signed with it.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::files::{self, Existing};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, NameConstraints,
};
use serde::{Deserialize, Serialize};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// The local names of this machine.
pub const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// A generated certificate's lifetime: the most that Apple's systems accept.
const LIFETIME: Duration = Duration::from_secs(825 * 86_400);
/// The remaining lifetime below which a certificate is generated anew.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// The tolerated clock difference between this machine and its callers.
const CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// The files of a certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by those that signed it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A generated certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedCertificate {
    /// The certificate and its key (mode 0600).
    pub files: CertificateFiles,
    /// The authority's certificate, which callers must trust.
    pub authority: PathBuf,
}

/// The longest certificate record that is read, in bytes.
const RECORD_BYTES: u64 = 64 << 10;

/// The names and expiry of a generated certificate, to check whether it is still usable.
#[derive(Debug, Serialize, Deserialize)]
struct CertificateRecord {
    names: Vec<String>,
    /// Seconds since 1970.
    expires: u64,
}

/// Builds the acceptor for this certificate. Error: `CONFLICT` with the file that is unusable.
pub fn acceptor(files: &CertificateFiles) -> Result<TlsAcceptor> {
    let unusable = |path: &Path, why: &dyn std::fmt::Display| {
        Error::new(ErrorCode::Conflict, format!("cannot use {}: {why}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| unusable(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.cert, &"it contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, &error))?;
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| unusable(&files.cert, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns the certificate in this directory for these names and [`LOCAL_NAMES`]. Generates it if
/// it is missing, has other names, or expires soon.
pub fn load_or_generate(dir: &Path, names: &[String]) -> Result<GeneratedCertificate> {
    let mut names: Vec<String> =
        LOCAL_NAMES.iter().map(|name| (*name).to_owned()).chain(names.iter().cloned()).collect();
    names.sort();
    names.dedup();
    let certificate = GeneratedCertificate {
        files: CertificateFiles { cert: dir.join("cert.pem"), key: dir.join("key.pem") },
        authority: dir.join("ca.pem"),
    };
    files::make_private_folder(dir).map_err(|error| {
        Error::new(ErrorCode::Conflict, format!("the certificate directory {} {error}", dir.display()))
    })?;
    if is_usable(dir, &certificate, &names) {
        return Ok(certificate);
    }
    let failed = |error: io::Error| {
        Error::new(ErrorCode::Conflict, format!("cannot write a certificate to {}: {error}", dir.display()))
    };
    let texts = generate(&names).map_err(|error| Error::internal(format!("cannot generate a certificate: {error}")))?;
    let record = CertificateRecord { names, expires: seconds(SystemTime::now() + LIFETIME) };
    // The record is removed during the change, so that an incomplete set is never used.
    let _ = fs::remove_file(dir.join("made.json"));
    write(&certificate.authority, &texts.authority).map_err(failed)?;
    write(&certificate.files.cert, &texts.chain).map_err(failed)?;
    write(&certificate.files.key, &texts.key).map_err(failed)?;
    write(&dir.join("made.json"), &serde_json::to_string(&record).unwrap_or_default()).map_err(failed)?;
    tracing::info!("generated a certificate for {} in {}", record.names.join(", "), dir.display());
    Ok(certificate)
}

fn is_usable(dir: &Path, certificate: &GeneratedCertificate, names: &[String]) -> bool {
    let Ok((record, _)) = files::read_secret(&dir.join("made.json"), RECORD_BYTES) else { return false };
    let Ok(record) = serde_json::from_str::<CertificateRecord>(&record) else { return false };
    let pem = [&certificate.files.key, &certificate.files.cert, &certificate.authority];
    pem.into_iter().all(|path| files::read_secret(path, 0).is_ok())
        && record.names == names
        && record.expires > seconds(SystemTime::now() + RENEW_BEFORE)
        && acceptor(&certificate.files).is_ok()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    files::write_secret(path, text.trim_end(), Existing::Replace)
}

struct PemTexts {
    authority: String,
    chain: String,
    key: String,
}

fn generate(names: &[String]) -> std::result::Result<PemTexts, rcgen::Error> {
    let (from, to) = (SystemTime::now() - CLOCK_SKEW, SystemTime::now() + LIFETIME);

    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority.distinguished_name.push(DnType::CommonName, "muxtap on this machine");
    (authority.not_before, authority.not_after) = (from.into(), to.into());
    authority.name_constraints = Some(NameConstraints {
        permitted_subtrees: names.iter().map(|name| subtree(name)).collect(),
        excluded_subtrees: Vec::new(),
    });
    let authority_key = KeyPair::generate()?;
    let authority_cert = authority.self_signed(&authority_key)?;

    let mut server = CertificateParams::new(names.to_vec())?;
    server.distinguished_name.push(DnType::CommonName, "muxtap");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    (server.not_before, server.not_after) = (from.into(), to.into());
    let key = KeyPair::generate()?;
    let cert = server.signed_by(&key, &Issuer::new(authority, authority_key))?;

    let authority = authority_cert.pem();
    Ok(PemTexts { chain: format!("{}{authority}", cert.pem()), key: key.serialize_pem(), authority })
}

fn subtree(name: &str) -> GeneralSubtree {
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(addr)) => GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(addr.octets(), 32)),
        Ok(IpAddr::V6(addr)) => GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(addr.octets(), 128)),
        Err(_) => GeneralSubtree::DnsName(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_for_its_names_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("tls");
        let certificate = load_or_generate(&dir, &[]).unwrap();
        let first = fs::read(&certificate.files.cert).unwrap();
        assert_eq!(fs::metadata(&certificate.files.key).unwrap().permissions().mode() & 0o777, 0o600);
        acceptor(&certificate.files).unwrap();
        load_or_generate(&dir, &[]).unwrap();
        assert_eq!(first, fs::read(&certificate.files.cert).unwrap());
        load_or_generate(&dir, &["box.lan".into()]).unwrap();
        let second = fs::read(&certificate.files.cert).unwrap();
        assert_ne!(first, second);
        // An incomplete set counts as missing.
        fs::remove_file(&certificate.files.key).unwrap();
        load_or_generate(&dir, &["box.lan".into()]).unwrap();
        assert_ne!(second, fs::read(&certificate.files.cert).unwrap());
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 4, "{left:?}");
    }

    #[test]
    fn a_folder_that_others_can_write_or_a_link_holds_no_key() {
        use std::os::unix::fs::PermissionsExt as _;
        let top = tempfile::tempdir().unwrap();
        let (dir, link) = (top.path().join("tls"), top.path().join("link"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        for folder in [&dir, &link] {
            assert!(load_or_generate(folder, &[]).unwrap_err().message.contains("can be written by others"));
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let files = CertificateFiles { cert: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        assert!(acceptor(&files).err().unwrap().message.contains("c.pem"));
        fs::write(&files.cert, "nothing").unwrap();
        assert!(acceptor(&files).err().unwrap().message.contains("no certificate"));
    }
}
