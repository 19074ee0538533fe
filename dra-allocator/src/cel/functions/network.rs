//! IP addresses, networks and URLs.
//!
//! Follows `ip.go`, `cidr.go` and `urls.go` in `k8s.io/apiserver/pkg/cel/library`. URLs that need
//! escapes, user names or addresses in brackets are rejected at runtime.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::cel::error::{ErrorClass, RuntimeError};
use crate::cel::function::{Evaluated, Function, global, method, no_such_overload};
use crate::cel::network::{Cidr, Url};
use crate::cel::value::Value;
use crate::device::Device;

pub(super) const FUNCTIONS: &[Function] = &[
    global("ip", (1, 1), |a, _| of_text(a, |text| address(text).map(Value::Ip))),
    method("ip", (1, 1), |a, _| of_cidr(a, |network| Value::Ip(network.address))),
    global("isIP", (1, 1), |a, _| of_text(a, |text| Ok(address(text).is_ok().into()))),
    global("ip.isCanonical", (1, 1), |a, _| {
        of_text(a, |text| Ok((address(text)?.to_string() == text).into()))
    }),
    method("family", (1, 1), |a, _| of_ip(a, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 }))),
    method("isUnspecified", (1, 1), |a, _| of_ip(a, |ip| ip.is_unspecified().into())),
    method("isLoopback", (1, 1), |a, _| of_ip(a, |ip| ip.is_loopback().into())),
    method("isLinkLocalMulticast", (1, 1), |a, _| {
        of_ip(a, |ip| is_link_local_multicast(ip).into())
    }),
    method("isLinkLocalUnicast", (1, 1), |a, _| of_ip(a, |ip| is_link_local(ip).into())),
    method("isGlobalUnicast", (1, 1), |a, _| of_ip(a, |ip| is_global_unicast(ip).into())),
    global("cidr", (1, 1), |a, _| of_text(a, |text| Ok(Value::Cidr(Arc::new(network(text)?))))),
    global("isCIDR", (1, 1), |a, _| of_text(a, |text| Ok(network(text).is_ok().into()))),
    method("containsIP", (2, 2), contains_ip),
    method("containsCIDR", (2, 2), contains_cidr),
    method("prefixLength", (1, 1), |a, _| of_cidr(a, |network| Value::Int(network.prefix.into()))),
    method("masked", (1, 1), |a, _| of_cidr(a, |network| Value::Cidr(Arc::new(network.masked())))),
    global("url", (1, 1), |a, _| of_text(a, |text| Ok(Value::Url(Arc::new(url(text)?))))),
    method("getScheme", (1, 1), |a, _| of_url(a, |url| url.scheme.clone())),
    method("getHost", (1, 1), |a, _| of_url(a, |url| url.host.clone())),
    method("getHostname", (1, 1), |a, _| of_url(a, |url| url.hostname().to_owned())),
    method("getPort", (1, 1), |a, _| of_url(a, |url| url.port().to_owned())),
    method("getEscapedPath", (1, 1), |a, _| of_url(a, |url| url.path.clone())),
];

fn of_text(arguments: &[Value], map: fn(&str) -> Evaluated) -> Evaluated {
    match &arguments[0] {
        Value::String(text) => map(text),
        _ => Err(no_such_overload()),
    }
}

fn of_ip(arguments: &[Value], map: fn(&IpAddr) -> Value) -> Evaluated {
    match &arguments[0] {
        Value::Ip(address) => Ok(map(address)),
        _ => Err(no_such_overload()),
    }
}

fn of_cidr(arguments: &[Value], map: fn(&Cidr) -> Value) -> Evaluated {
    match &arguments[0] {
        Value::Cidr(network) => Ok(map(network)),
        _ => Err(no_such_overload()),
    }
}

fn of_url(arguments: &[Value], map: fn(&Url) -> String) -> Evaluated {
    match &arguments[0] {
        Value::Url(url) => Ok(Value::String(map(url).into())),
        _ => Err(no_such_overload()),
    }
}

/// Parses an address; rejects IPv4-mapped IPv6 addresses.
fn address(text: &str) -> Result<IpAddr, RuntimeError> {
    match text.parse().map_err(|_| invalid_address(text, "unable to parse IP"))? {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(invalid_address(text, "IPv4-mapped IPv6 address is not allowed"))
        }
        address => Ok(address),
    }
}

fn invalid_address(text: &str, problem: &str) -> RuntimeError {
    RuntimeError::invalid(format!("IP Address {text:?} parse error during conversion: {problem}"))
}

fn network(text: &str) -> Result<Cidr, RuntimeError> {
    let (address_text, prefix) = text.split_once('/').ok_or_else(|| invalid_network(text))?;
    let address = address(address_text)?;
    let digits = !prefix.is_empty() && prefix.bytes().all(|digit| digit.is_ascii_digit());
    let plain = prefix == "0" || !prefix.starts_with('0');
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|prefix| digits && plain && *prefix <= most);
    Ok(Cidr { address, prefix: prefix.ok_or_else(|| invalid_network(text))? })
}

fn invalid_network(text: &str) -> RuntimeError {
    RuntimeError::invalid(format!("CIDR {text:?} network address parse error during conversion"))
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let broadcast = *address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local(address)
        || broadcast)
}

fn contains_ip(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Cidr(network), Value::Ip(ip)] => Ok(network.contains(*ip).into()),
        [Value::Cidr(network), Value::String(text)] => Ok(network.contains(address(text)?).into()),
        _ => Err(no_such_overload()),
    }
}

fn contains_cidr(arguments: &[Value], _: &Device) -> Evaluated {
    let (outer, inner) = match arguments {
        [Value::Cidr(outer), Value::Cidr(inner)] => (outer, **inner),
        [Value::Cidr(outer), Value::String(text)] => (outer, network(text)?),
        _ => return Err(no_such_overload()),
    };
    let contains = outer.prefix <= inner.prefix && outer.contains(inner.address);
    Ok(contains.into())
}

fn url(text: &str) -> Result<Url, RuntimeError> {
    if text.contains(['%', '[', '#', '@', ' ']) || !text.is_ascii() {
        let refusal = format!("the URL {text:?} is not supported here");
        return Err(RuntimeError::new(ErrorClass::Unsupported, refusal));
    }
    let (rest, query) = text.split_once('?').unwrap_or((text, ""));
    let query = query.to_owned();
    if rest.starts_with('/') && !rest.starts_with("//") {
        let (scheme, host) = Default::default();
        return Ok(Url { scheme, host, path: rest.to_owned(), query });
    }
    let (scheme, rest) = rest.split_once("://").ok_or_else(|| invalid_url(text))?;
    let letters = scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c));
    if !letters || !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(invalid_url(text));
    }
    let path_at = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(path_at);
    let port = host.split_once(':').map_or("", |(_, port)| port);
    if !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(invalid_url(text));
    }
    Ok(Url {
        scheme: scheme.to_ascii_lowercase(),
        host: host.to_owned(),
        path: path.to_owned(),
        query,
    })
}

fn invalid_url(text: &str) -> RuntimeError {
    RuntimeError::invalid(format!("URL parse error during conversion: {text:?}"))
}
