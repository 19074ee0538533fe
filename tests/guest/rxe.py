#!/usr/bin/env python3
"""Changes Linux 6.1's soft RoCE driver so that tests can use it as a NIC's.

usage: rxe.py DIR   (a copy of drivers/infiniband/sw/rxe)

- The device hangs below the PCI function of its interface, as a real one does.
- It may move to another network namespace, and lives on when its interface
  moves: sockets and routes are those of the interface's namespace.
- It receives what is for a macvlan on its interface, as a NIC's does.
"""

import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])


def change(name, *replacements):
    """Replaces each text, which must be there."""
    path = FOLDER / name
    text = path.read_text()
    for old, new in replacements:
        assert old in text, f"{path}: no `{old}`"
        text = text.replace(old, new)
    path.write_text(text)


change(
    "rxe_verbs.c",
    (
        "#include <linux/dma-mapping.h>",
        "#include <linux/dma-mapping.h>\n#include <linux/pci.h>",
    ),
    (
        "\terr = rxe_icrc_init(rxe);",
        "\t{\n\t\tstruct device *parent = rxe->ndev->dev.parent;\n\n"
        "\t\twhile (parent && !dev_is_pci(parent))\n\t\t\tparent = parent->parent;\n"
        "\t\tdev->dev.parent = parent;\n\t}\n\terr = rxe_icrc_init(rxe);",
    ),
    # Else QP1 cannot be made again after a move.
    (
        "\trxe_cleanup(qp);\n\treturn 0;\n}",
        "\tif (ibqp->qp_type == IB_QPT_GSI)\n\t\tto_rdev(ibqp->device)->port.qp_gsi_index = 0;\n"
        "\trxe_cleanup(qp);\n\treturn 0;\n}",
    ),
    # Without it the kernel refuses to move the device.
    (
        "\t.get_link_layer = rxe_get_link_layer,",
        "\t.get_link_layer = rxe_get_link_layer,\n"
        "\t.disassociate_ucontext = rxe_disassociate_ucontext,",
    ),
    (
        "static int rxe_alloc_ucontext(",
        "static void rxe_disassociate_ucontext(struct ib_ucontext *c) { }\n\n"
        "static int rxe_alloc_ucontext(",
    ),
)
# A socket of the kernel's own would not keep its namespace, and a pair of queues may end after
# the pod.
change(
    "rxe_qp.c",
    (
        "sock_create_kern(&init_net, AF_INET, SOCK_DGRAM, 0, &qp->sk)",
        "__sock_create(dev_net(rxe->ndev), AF_INET, SOCK_DGRAM, 0, &qp->sk, 0)",
    ),
)
change(
    "rxe_net.c",
    (
        "#include <net/udp_tunnel.h>",
        "#include <net/udp_tunnel.h>\n#include <net/net_namespace.h>\n#include <net/netns/generic.h>\n"
        "#include <linux/if_macvlan.h>",
    ),
    # As the driver does for a VLAN: the interface in the pod is a macvlan on the device's own.
    (
        "\tif (!rxe && is_vlan_dev(ndev))\n\t\trxe = rxe_get_dev_from_net(vlan_dev_real_dev(ndev));",
        "\tif (!rxe && is_vlan_dev(ndev))\n\t\trxe = rxe_get_dev_from_net(vlan_dev_real_dev(ndev));\n"
        "\tif (!rxe && netif_is_macvlan(ndev))\n"
        "\t\trxe = rxe_get_dev_from_net(macvlan_dev_real_dev(ndev));",
    ),
    (
        "static struct rxe_recv_sockets recv_sockets;",
        "static unsigned int rxe_net_id;\n"
        "static struct rxe_recv_sockets *rs(struct net *net)\n"
        "{\n\treturn net_generic(net, rxe_net_id);\n}",
    ),
    ("ip_route_output_key(&init_net,", "ip_route_output_key(dev_net(ndev),"),
    ("ndst = ipv6_stub->", "if (!rs(dev_net(ndev))->sk6)\n\t\treturn NULL;\n\tndst = ipv6_stub->"),
    ("sock_net(recv_sockets.sk6->sk)", "dev_net(ndev)"),
    ("recv_sockets.sk6->sk, &fl6", "rs(dev_net(ndev))->sk6->sk, &fl6"),
    (
        "\t\tib_unregister_device_queued(&rxe->ib_dev);",
        "\t\tif (ndev->reg_state == NETREG_UNREGISTERING)\n"
        "\t\t\tib_unregister_device_queued(&rxe->ib_dev);",
    ),
)
# One pair of sockets per namespace instead of one for all.
path = FOLDER / "rxe_net.c"
text = path.read_text()
text = text[: text.index("static int rxe_net_ipv4_init(void)")]
path.write_text(
    text
    + """static int __net_init rxe_pernet_init(struct net *net)
{
	struct rxe_recv_sockets *r = rs(net);

	r->sk4 = rxe_setup_udp_tunnel(net, htons(ROCE_V2_UDP_DPORT), false);
	if (IS_ERR(r->sk4))
		r->sk4 = NULL;
	r->sk6 = rxe_setup_udp_tunnel(net, htons(ROCE_V2_UDP_DPORT), true);
	if (IS_ERR(r->sk6))
		r->sk6 = NULL;
	return 0;
}

static void __net_exit rxe_pernet_exit(struct net *net)
{
	rxe_release_udp_tunnel(rs(net)->sk6);
	rxe_release_udp_tunnel(rs(net)->sk4);
}

static struct pernet_operations rxe_pernet_ops = {
	.init = rxe_pernet_init,
	.exit = rxe_pernet_exit,
	.id = &rxe_net_id,
	.size = sizeof(struct rxe_recv_sockets),
};

void rxe_net_exit(void)
{
	unregister_netdevice_notifier(&rxe_net_notifier);
	unregister_pernet_device(&rxe_pernet_ops);
}

int rxe_net_init(void)
{
	int err = register_pernet_device(&rxe_pernet_ops);

	if (err)
		return err;
	err = register_netdevice_notifier(&rxe_net_notifier);
	if (err)
		unregister_pernet_device(&rxe_pernet_ops);
	return err;
}
"""
)
