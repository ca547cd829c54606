package template

import (
	"math/big"
	"net/netip"
)

func cidrFunctions() []function {
	return []function{
		{name: "parseCidr", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			p, err := argPrefix(args)
			if err != nil {
				return nil, err
			}
			first, last := p.Masked().Addr(), lastAddr(p)
			mask := addrAt(netip.PrefixFrom(zeroAddr(p.Addr()), 0), new(big.Int).Sub(span(p.Addr().BitLen()), span(p.Addr().BitLen()-p.Bits())))
			o := NewObject()
			o.Set("network", first.String())
			o.Set("netmask", mask.String())
			from, to := first, last
			if p.Addr().Is4() {
				o.Set("broadcast", last.String())
			}
			if p.Addr().BitLen()-p.Bits() > 1 && p.Addr().Is4() {
				from, to = first.Next(), last.Prev()
			}
			o.Set("firstUsable", from.String())
			o.Set("lastUsable", to.String())
			o.Set("cidr", int64(p.Bits()))
			return o, nil
		}},
		{name: "cidrSubnet", min: 3, max: 3, eval: func(_ *evaluator, args []any) (any, error) {
			p, err := argPrefix(args)
			if err != nil {
				return nil, err
			}
			bits, err := argInt(args, 1)
			if err != nil {
				return nil, err
			}
			n, err := argInt(args, 2)
			if err != nil {
				return nil, err
			}
			if bits < int64(p.Bits()) || bits > int64(p.Addr().BitLen()) {
				return nil, failf("the new prefix must have from %d to %d bits", p.Bits(), p.Addr().BitLen())
			}
			count := span(int(bits) - p.Bits())
			if n < 0 || big.NewInt(n).Cmp(count) >= 0 {
				return nil, failf("the network has %s subnets of that size: the index is out of range", count)
			}
			at := new(big.Int).Mul(big.NewInt(n), span(p.Addr().BitLen()-int(bits)))
			return netip.PrefixFrom(addrAt(p, at), int(bits)).String(), nil
		}},
		{name: "cidrHost", min: 2, max: 2, eval: func(_ *evaluator, args []any) (any, error) {
			p, err := argPrefix(args)
			if err != nil {
				return nil, err
			}
			n, err := argInt(args, 1)
			if err != nil {
				return nil, err
			}
			// Index 0 is the first usable address.
			host := p.Addr().BitLen() - p.Bits()
			at, usable := big.NewInt(n), span(host)
			if host > 1 {
				at.Add(at, big.NewInt(1))
				usable.Sub(usable, big.NewInt(1))
				if !p.Addr().Is4() {
					usable.Add(usable, big.NewInt(1))
				}
			}
			if n < 0 || at.Cmp(usable) >= 0 {
				return nil, failf("the index is beyond the addresses of the network")
			}
			return addrAt(p, at).String(), nil
		}},
	}
}

func argPrefix(args []any) (netip.Prefix, error) {
	s, err := argString(args, 0)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() || p.Addr().Zone() != "" {
		return netip.Prefix{}, failf("argument 1 is not a network in CIDR notation, such as 10.0.0.0/16")
	}
	return p, nil
}

// span is 2^bits.
func span(bits int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(bits)) }

func zeroAddr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// addrAt is the address n after the first of a network.
func addrAt(p netip.Prefix, n *big.Int) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	sum := new(big.Int).Add(new(big.Int).SetBytes(b), n)
	a, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, len(b))))
	return a
}

func lastAddr(p netip.Prefix) netip.Addr {
	return addrAt(p, new(big.Int).Sub(span(p.Addr().BitLen()-p.Bits()), big.NewInt(1)))
}
