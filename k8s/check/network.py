"""NetworkPolicies: each selects somebody, lets in what is meant, and what a pod needs is let through.

Takes a bundle; yields selectors that fit nobody, ports that nobody has, ways to a cloud's metadata, and ways
of ours that are closed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from k8s.check import provided
from k8s.check.bundle import Bundle, Found, Json, Pod, fits, name, namespace
from k8s.check.pods import Said

METADATA = ("169.254.169.254", "fd00:ec2::254")
PRIVATE = ("10.0.0.1", "100.64.0.1", "172.16.0.1", "192.168.0.1", "fc00::1", "fe80::1")
_SIDES = (("Ingress", "ingress", "from"), ("Egress", "egress", "to"))


def check(bundle: Bundle) -> Found:
    """What is wrong with each policy."""
    for item in bundle.of("NetworkPolicy"):
        pods = bundle.selected(item["spec"]["podSelector"], namespace(item))
        if not pods:
            yield item, "spec.podSelector", "selects no pod here"
        if not any(item["spec"]["podSelector"].values()) and any(
            item["spec"].get(side[1]) for side in _SIDES
        ):
            yield item, "spec.podSelector", "opens something for every pod of the namespace"
        if any(item["spec"]["podSelector"].values()) and not any(
            item["spec"].get(side[1]) for side in _SIDES
        ):
            yield item, "spec", "has no rule, and denies what is denied already"
        if "policyTypes" not in item["spec"]:
            yield item, "spec.policyTypes", "is missing: say which sides are meant"
        for side, rules, peers in _SIDES:
            for index, rule in enumerate(item["spec"].get(rules, [])):
                path = f"spec.{rules}[{index}]"
                for said in _rule(bundle, item, rule, pods if side == "Ingress" else None, peers):
                    yield item, path, said
                yield from ((item, path, words) for words in _too_wide(rule, peers))


def applies(policy: Json, side: str) -> bool:
    """Whether a policy restricts that side; egress is meant only when it is named or has rules."""
    types = policy["spec"].get("policyTypes")
    return side in types if types is not None else side == "Ingress" or "egress" in policy["spec"]


def ways(
    bundle: Bundle, pod: Pod, side: str, port: int, protocol: str = "TCP"
) -> Iterator[tuple[Json, Json]]:
    """Policy and rule that let something through at that port of the pod (Ingress) or of others (Egress).

    Both are empty when no policy restricts the pod on that side.
    """
    policies = [each for each in bundle.of("NetworkPolicy") if namespace(each) == pod.namespace]
    policies = [
        each for each in policies if fits(each["spec"]["podSelector"], pod.labels) and applies(each, side)
    ]
    if not policies:
        yield {}, {}
    for policy in policies:
        for rule in policy["spec"].get(side.lower(), []):
            targets = [pod] if side == "Ingress" else _peers(bundle, policy, rule.get("to", []))
            if _lets(rule, targets, port, protocol):
                yield policy, rule


def reaches(bundle: Bundle, pod: Pod, target: Pod, port: int) -> bool:
    """Whether policies let one pod of this bundle connect to another."""
    out = (
        _includes(bundle, policy, rule, "to", target) for policy, rule in ways(bundle, pod, "Egress", port)
    )
    into = (
        _includes(bundle, policy, rule, "from", pod) for policy, rule in ways(bundle, target, "Ingress", port)
    )
    return any(out) and any(into)


def _includes(bundle: Bundle, policy: Json, rule: Json, peers: str, pod: Pod) -> bool:
    told = rule.get(peers)
    return not told or any(each.owner is pod.owner for each in _peers(bundle, policy, told))


def lets_in(bundle: Bundle, pod: Pod, port: int, outside: Json) -> bool:
    """Whether a namespace with these labels, which a site brings, may connect to that port."""
    for _, rule in ways(bundle, pod, "Ingress", port):
        peers = rule.get("from", [{"namespaceSelector": {}}])
        if any("namespaceSelector" in peer and fits(peer["namespaceSelector"], outside) for peer in peers):
            return True
    return False


def _lets(rule: Json, targets: list[Pod], port: int, protocol: str) -> bool:
    for told in rule.get("ports", [{"protocol": protocol}]):
        if told.get("protocol", "TCP") != protocol:
            continue
        wanted = told.get("port", port)
        if isinstance(wanted, str):
            numbers = [p["containerPort"] for pod in targets for p in pod.ports() if p.get("name") == wanted]
            if port in numbers:
                return True
        elif wanted <= port <= told.get("endPort", wanted):
            return True
    return False


def _peers(bundle: Bundle, policy: Json, peers: list[Json]) -> list[Pod]:
    """Pods of this bundle that are meant."""
    return [pod for peer in peers for pod in _peer(bundle, policy, peer)]


def _peer(bundle: Bundle, policy: Json, peer: Json) -> list[Pod]:
    if "ipBlock" in peer:
        return []
    spaces = {namespace(policy)}
    if "namespaceSelector" in peer:
        labelled = {name(each): _labels(each) for each in bundle.of("Namespace")}
        spaces = {each for each, labels in labelled.items() if fits(peer["namespaceSelector"], labels)}
    return [pod for each in spaces for pod in bundle.selected(peer.get("podSelector", {}), each)]


def _labels(item: Json) -> dict[str, str]:
    """A namespace's, with the one that the API server adds."""
    return {**item["metadata"].get("labels", {}), "kubernetes.io/metadata.name": name(item)}


def _rule(bundle: Bundle, item: Json, rule: Json, pods: list[Pod] | None, peers: str) -> Iterator[str]:
    """Whom a rule means, and whether its ports are there; `pods`: whose ports, None: its peers'."""
    for peer in rule.get(peers, []):
        inside = _peer(bundle, item, peer)
        outside = "namespaceSelector" in peer and provided.has_peer(
            peer["namespaceSelector"], peer.get("podSelector")
        )
        if "ipBlock" not in peer and not inside and not outside:
            yield f"an item of {peers} fits no pod, neither here nor of what a site brings"
        elif (
            outside
            and not any(peer.get("podSelector", {}).values())
            and provided.has_pods(peer["namespaceSelector"])
        ):
            yield f"an item of {peers} is about every pod of that namespace"
    targets = _peers(bundle, item, rule.get(peers, [])) if pods is None else pods
    for told in rule.get("ports", []):
        port, protocol = told.get("port"), told.get("protocol", "TCP")
        if port is None or (isinstance(port, int) and not targets):
            continue
        lacking = [name(pod.owner) for pod in targets if not pod.has_port(port, protocol)]
        if lacking or not targets:
            yield f"{' and '.join(lacking) or 'nobody here'} has no port {port}/{protocol}"


def _too_wide(rule: Json, peers: str) -> Iterator[str]:
    if not rule.get(peers):
        yield f"has no {peers}: that is everybody, everywhere"
    if not rule.get("ports") or any("port" not in port for port in rule["ports"]):
        yield "is open at every port"
    for peer in rule.get(peers, []):
        if peer.get("namespaceSelector") and not fits(peer["namespaceSelector"], {}):
            continue  # some namespaces
        if "namespaceSelector" in peer:
            yield f"an item of {peers} is about every namespace, where anybody may label pods"
        for address in METADATA if "ipBlock" in peer else ():
            if _covers(peer["ipBlock"], address):
                yield f"reaches {address}, where a cloud answers questions about credentials"
        for address in PRIVATE if peer.get("ipBlock", {}).get("cidr", "").endswith("/0") else ():
            if _covers(peer["ipBlock"], address):
                yield f"reaches private networks, such as {address}'s"


def _covers(block: Json, address: str) -> bool:
    """Whether an ipBlock lets that address through."""
    try:
        told = ipaddress.ip_address(address)
        excepted = any(told in ipaddress.ip_network(each) for each in block.get("except", []))
        return told in ipaddress.ip_network(block["cidr"]) and not excepted
    except ValueError:
        return False  # `objects` says that it is none


def denied_by_default(bundle: Bundle, where: str) -> Said:
    """Each namespace with pods has a policy that selects all of them and lets nothing through, both ways."""
    for side, rules, _ in _SIDES:
        everywhere = [
            each
            for each in bundle.of("NetworkPolicy")
            if namespace(each) == where
            and not each["spec"]["podSelector"]
            and applies(each, side)
            and not each["spec"].get(rules)
        ]
        if not everywhere:
            yield "metadata.name", f"no NetworkPolicy denies {side} by default"
