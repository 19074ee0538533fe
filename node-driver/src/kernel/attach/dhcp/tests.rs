//! How a server's answer is used.

use super::*;
use mozim::DhcpV4ClasslessRoute;

fn answer() -> DhcpV4Lease {
    let mut lease = DhcpV4Lease::default();
    lease.yiaddr = Ipv4Addr::new(10, 9, 8, 7);
    lease.srv_id = Ipv4Addr::new(10, 9, 8, 1);
    lease.subnet_mask = Ipv4Addr::new(255, 255, 252, 0);
    (lease.t1_sec, lease.t2_sec, lease.lease_time_sec) = (30, 50, 60);
    lease.gateways = Some(vec![Ipv4Addr::new(10, 9, 8, 254)]);
    lease
}

#[test]
fn an_answer_holds_address_and_routes() {
    let lease = Lease::new(&answer());
    assert_eq!(lease.prefix.to_string(), "10.9.8.7/22");
    assert_eq!(lease.address().broadcast, Some(Ipv4Addr::new(10, 9, 11, 255)));
    assert_eq!(lease.address().seconds, Some(60));
    let default = "0.0.0.0/0".parse().expect("a prefix");
    assert_eq!(lease.routes, [(default, Ipv4Addr::new(10, 9, 8, 254))]);
}

#[test]
fn classless_routes_override_the_router() {
    let mut answer = answer();
    answer.classless_routes = Some(vec![DhcpV4ClasslessRoute {
        destination: Ipv4Addr::new(172, 20, 0, 0),
        prefix_length: 14,
        router: Ipv4Addr::UNSPECIFIED,
    }]);
    let lease = Lease::new(&answer);
    let [(destination, router)] = lease.routes[..] else { panic!("{:?}", lease.routes) };
    assert_eq!(destination.to_string(), "172.20.0.0/14");
    let route = route(destination, router, TABLE_MAIN);
    assert_eq!((route.gateway, route.scope, route.table), (None, 253, TABLE_MAIN));
}

#[test]
fn a_missing_mask_means_a_single_address() {
    let mut answer = answer();
    answer.subnet_mask = Ipv4Addr::UNSPECIFIED;
    assert_eq!(Lease::new(&answer).prefix.prefix_len, 32);
}

#[test]
fn a_stored_lease_is_taken_over() {
    let lease = Lease::new(&answer());
    let text = serde_json::to_string(&lease).expect("texts and numbers");
    let read: Lease = serde_json::from_str(&text).expect("its own text");
    assert_eq!(read, lease);
    let known = read.known();
    assert_eq!((known.yiaddr, known.srv_id), (answer().yiaddr, answer().srv_id));
    assert_eq!((known.t1_sec, known.t2_sec, known.lease_time_sec), (30, 50, 60));
}
