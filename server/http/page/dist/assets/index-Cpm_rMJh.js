var e,t,n,r,i,a,o,s,c,l,u,d=Symbol.for(`pv`),f={},p=[],m=/^m(i|n|o|s|text|space)$/,h=Array.isArray,g=p.slice,_=Object.assign;function v(e){e&&e.parentNode&&e.remove()}function y(e,t,n){var r,i,a,o={},s=arguments.length;for(a in t)a==`key`?r=t[a]:a==`ref`&&typeof e!=`function`?i=t[a]:o[a]=t[a];return s>2&&(o.children=s>3?g.call(arguments,2):n),b(e,o,r,i,null)}function b(n,r,i,a,o){var s={type:n,props:r,key:i,ref:a,__k:null,__:null,__b:0,__e:null,__c:null,constructor:d,__v:o||++t,__i:-1,__u:0};return!o&&e.vnode&&e.vnode(s),s}function x(e){return e.children}function S(e,t){this.props=e,this.context=t,this.__g=0}function C(e,t){if(t==null)return e.__&&C(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!=`function`||e.props.__P?null:C(e)}function w(t){var n,r=t.__v,i=r.__e,a=[],o=[],s=t.__P;s&&((n=_({constructor:d},r)).__v=r.__v+1,e.vnode&&e.vnode(n),oe(s,n,r,t.__n,s.namespaceURI,32&r.__u?[i]:null,a,i||C(r),32&r.__u,o),n.__v=r.__v,n.__.__k[n.__i]=n,k(a,n,o),r.__=r.__e=null,n.__e!=i&&T(n))}function T(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(function(t){return t&&(e.__e=t.__e)}),T(e)}function E(t){(8&t.__g||(t.__g|=8,r.push(t),a++))&&i==e.debounceRendering||((i=e.debounceRendering)||queueMicrotask)(D)}function D(){try{for(var e,t=1;r.length;)r.length>t&&r.sort(o),e=r.shift(),t=r.length,8&e.__g&&w(e)}finally{(a=r.length)&&(i||queueMicrotask)(D)}}function ee(e,t,n,r,i,a,o,s,c,l,u){var d,m,h,g,_,v,y=r.__k||p,b=t.length;for(c=te(n,t,y,c,b),d=0;d<b;d++)(h=n.__k[d])!=null&&(m=~h.__i&&y[h.__i]||f,h.__i=d,v=oe(e,h,m,i,a,o,s,c,l,u),g=h.__e,(m.ref!=h.ref||8&m.__u)&&(m.ref&&j(m.ref,null,h,m),h.ref&&u.push(h.ref,h.__c||g,h)),_||=g,4&h.__u?(c=ne(h,c,e,!m.__v),m.__e&&(m.__e=null)):typeof h.type==`function`&&v!==void 0?c=v:g&&(c=g.nextSibling),h.__u&=-21);return n.__e=_,c}function te(e,t,n,r,i){var a,o,s,c,l,u,f,p,m,g=n.length,_=g,v=0,y=0,S=e.__k=Array(i);for(a=0;a<i;a++)(o=t[a])!=null&&typeof o!=`boolean`&&typeof o!=`function`?(typeof o!=`object`||o.constructor===String?o=S[a]=b(null,o):h(o)?o=S[a]=b(x,{children:o}):o.constructor===d&&o.__b?o=S[a]=b(o.type,o.props,o.key,o.ref,o.__v):S[a]=o,c=a+v,o.__=e,o.__b=e.__b+1,s=null,~(l=o.__i=O(o,n,c,_))&&(_--,(s=n[l])&&(s.__u|=2)),s&&s.__v?(o.__u|=16,l==c-1?v--:l==c+1?v++:l!=c&&(l>c?v--:v++,y=1)):(~l||(i>g?v--:i<g&&v++),typeof o.type!=`function`&&(o.__u|=4))):S[a]=null;if(y){for(u=[],f=[],a=0;a<i;a++)if((o=S[a])&&16&o.__u){for(v=0,p=u.length;v<p;)u[m=v+p>>1]<o.__i?v=m+1:p=m;u[v]=o.__i,f[a]=v+1}for(v=u.length;a--;)f[a]&&(f[a]==v?v--:S[a].__u|=4)}if(_)for(a=0;a<g;a++)!(s=n[a])||2&s.__u||(s.__e==r&&(r=C(s)),le(s,s));return r}function ne(e,t,n,r){var i,a,o,s;if(typeof e.type==`function`){if(e.props.__P)return t;if(i=e.__k)for(a=0;a<i.length;a++)i[a]&&(i[a].__=e,t=ne(i[a],t,n,!1));return t}for(t&&!t.parentNode&&(t=C(e))&&!t.parentNode&&(t=null),o=e.__e,s=t;s&&s.nodeType==8;)s=s.nextSibling;for(o!=s&&(!r&&n.moveBefore&&o.parentNode?n.moveBefore(o,t):n.insertBefore(o,t||null)),t=o;(t&&=t.nextSibling)&&t.nodeType==8&&!t.data.startsWith(`$s`););return t}function O(e,t,n,r){var i,a=e.key,o=e.type,s=t[n],c=s&&!(2&s.__u);if(s===null&&a==null||c&&a==s.key&&o==s.type)return n;if(r>+!!c){for(i=n-1;i>=0;i--)if((s=t[i])&&!(2&s.__u)&&a==s.key&&o==s.type)return i;for(i=n+1;i<t.length;i++)if((s=t[i])&&!(2&s.__u)&&a==s.key&&o==s.type)return i}return-1}function re(e,t,n){n??=``,t[0]==`-`?e.setProperty(t,n):e[t]=n}function ie(e,t,n,r,i){var a,o;if(t==`style`){if(typeof n==`string`)e.style.cssText=n;else{if(typeof r==`string`&&(e.style.cssText=r=``),r)for(t in r)n&&t in n||re(e.style,t);if(n)for(t in n)r&&n[t]==r[t]||re(e.style,t,n[t])}}else if(t[0]==`o`&&t[1]==`n`)typeof n!=`function`&&(n=null),typeof r!=`function`&&(r=null),(e.__e||={})[t]=n,n&&r||(o=u[t]||(u[t]=ae(t)),(e.__a||={})[t]=l,a=t!=(t=t.replace(c,`$1`)),(t=t.slice(2))[0]<`a`&&(t=t.toLowerCase()),n?e.addEventListener(t,o,a):e.removeEventListener(t,o,a));else{if(i==`http://www.w3.org/2000/svg`)t=t.replace(/xlink(H|:h)/,`h`).replace(/sName$/,`s`);else if(t!=`width`&&t!=`height`&&t!=`href`&&t!=`list`&&t!=`form`&&t!=`tabIndex`&&t!=`download`&&t!=`rowSpan`&&t!=`colSpan`&&t!=`role`&&t!=`popover`&&t in e)try{e[t]=n??``;return}catch{}if(typeof n==`function`)return;n==null||!1===n&&t[4]!=`-`?e.removeAttribute(t):e.setAttribute(t,t==`popover`&&n==1?``:n)}}function ae(t){return function(n){var r=this.__e;if(r){if(r=r[t],n[s]==null)n[s]=l++;else if(n[s]<this.__a[t])return;return r(e.event?e.event(n):n)}}}function oe(t,n,r,i,a,o,s,c,l,u){var f,m,g,y,b,w,T,E,D,te,ne,O,re,ie,ae,oe,k,j,M=n.type;if(n.constructor!==d)return null;128&r.__u&&(l=32&r.__u,f=r.__c.__z)&&(n.__u|=l,m=o=[],f.nodeType==8?c=se(f,o):o.push(f),c=o[0]||c),(f=e.__b)&&f(n);n:if(typeof M==`function`){g=s.length;try{if(E=n.props,D=(f=M.prototype)&&f.render,te=(f=M.contextType)&&i[f.__c],ne=f?te?te.props.value:f.__:i,(y=r.__c)?(n.__c=y,2&y.__g&&(y.__g|=1)):(D?n.__c=y=new M(E,ne):(n.__c=y=new S(E,ne),y.constructor=M,y.render=ue),te&&te.sub(y),y.state||(y.state={}),y.__n=i,y.__g|=8,y.__h=[],y.__k=[]),D&&(y.__s||(y.__s=y.state),M.getDerivedStateFromProps&&(y.__s==y.state&&(y.__s=_({},y.__s)),_(y.__s,M.getDerivedStateFromProps(E,y.__s)))),b=y.props,w=y.state,y.__v=n,r.__c){if(E!==b&&D&&!M.getDerivedStateFromProps&&y.componentWillReceiveProps&&y.componentWillReceiveProps(E,ne),n.__v==r.__v&&!(8&y.__g)||!(4&y.__g)&&y.shouldComponentUpdate&&!1===y.shouldComponentUpdate(E,y.__s,ne)){n.__v!=r.__v&&(y.props=E,y.state=y.__s,y.__g&=-9),n.__e=r.__e,n.__k=r.__k,n.__k.some(function(e){e&&(e.__=n)}),p.push.apply(y.__h,y.__k),y.__k=[],y.__h.length&&s.push(y),c=C(r);break n}y.componentWillUpdate&&y.componentWillUpdate(E,y.__s,ne),D&&y.componentDidUpdate&&y.__h.push(function(){y.componentDidUpdate(b,w,T)})}else D&&!M.getDerivedStateFromProps&&y.componentWillMount&&y.componentWillMount(),D&&y.componentDidMount&&y.__h.push(y.componentDidMount);y.context=ne,y.props=E,y.__P=t,y.__g&=-5,O=e.__r,re=D?25:0;do y.__g&=-9,O&&O(n),f=y.render(y.props,y.state=y.__s,y.context);while(8&y.__g&&++re<25);D&&(p.push.apply(y.__h,y.__k),y.__k=[]),y.state=y.__s,y.getChildContext&&(i=_({},i,y.getChildContext())),D&&r.__c&&y.getSnapshotBeforeUpdate&&(T=y.getSnapshotBeforeUpdate(b,w)),ie=f&&f.type===x&&f.key==null?f.props.children:f,E.__P&&(f=c,a=(t=E.__P).namespaceURI,l=o=null,r.props&&r.props.__P!=t&&(r.__k.some(function(e){e&&le(e,e)}),r.__k=null),c=r.__k?C(r,0):null),c=ee(t,h(ie)?ie:[ie],n,r,i,a,o,s,c,l,u),E.__P&&(n.__e=null,c=f),n.__u&=-161,m&&m.some(v),y.__h.length&&s.push(y),1&y.__g&&(y.__g&=-4)}catch(t){if(s.length=g,n.__v=null,l||o){if(t&&t.then){if(n.__u|=128|l,o){for(~(k=o.indexOf(c||void 0))||(k=o.length);(j=o[k-1])&&j.nodeType==8;)k--;for(;k<o.length;k++)if(j=o[k]){if(o[k]=null,ae){if(j==oe)break}else{if(j.nodeType!=8)break;j.data.startsWith(`$s`)&&(oe=se(ae=j))}}}if(!ae){for(;c&&c.nodeType==8&&c.nextSibling;)c=c.nextSibling;ae=c}(f=se(ae=n.__c.__z||(n.__c.__z=ae)))?(n.__e=ae,c=f):n.__e=c,c&&=c.nextSibling}else o&&o.some(v)}else n.__e=r.__e;n.__k||=r.__k||[],t&&t.then||ce(n),e.__e(t,n,r)}}else c=n.__e=A(r.__e,n,r,i,a,o,s,l,u,t);return(f=e.diffed)&&f(n),c}function se(e,t){if(e&&e.nodeType==8&&e.data.startsWith(`$s`))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith(`$s`))n++;else if(e.data.startsWith(`/$s`)&&!--n)return e}t&&t.push(e)}}function ce(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(ce))}function k(t,n,r){for(var i=0;i<r.length;)j(r[i++],r[i++],r[i++]);e.__c&&e.__c(n,t),t.some(function(n){try{t=n.__h,n.__h=[],t.some(function(e){e.call(n)})}catch(t){e.__e(t,n.__v)}})}function A(t,n,r,i,a,o,s,c,l,u){var d,p,_,y,b,x,S,w,T=r.props||f,E=n.props,D=n.type;if(D==`svg`?a=`http://www.w3.org/2000/svg`:D==`math`?a=`http://www.w3.org/1998/Math/MathML`:a||=`http://www.w3.org/1999/xhtml`,o){for(d=0;d<o.length;d++)if((b=o[d])&&(D?b.localName==D:b.nodeType==3)){t=b,o[d]=null;break}}if(!t){if(w=u.ownerDocument||document,!D)return w.createTextNode(E);t=w.createElementNS(a,D,E.is?E:u),c&&=(e.__m&&e.__m(n,o),!1),o=null}if(D){if(u=D==`template`&&t.content||t,o=D==`textarea`&&E.defaultValue!=null?null:o&&g.call(u.childNodes),!c&&o)for(T={},d=0;d<t.attributes.length;d++)T[(b=t.attributes[d]).name]=b.value;for(d in T)b=T[d],d==`dangerouslySetInnerHTML`?_=b:d==`children`||d in E||d==`value`&&`defaultValue`in E||d==`checked`&&`defaultChecked`in E||ie(t,d,null,b,a);for(d in E)b=E[d],d==`children`?y=b:d==`dangerouslySetInnerHTML`?p=b:d==`value`?x=b:d==`checked`?S=b:c&&typeof b!=`function`||T[d]===b||ie(t,d,b,T[d],a);p?(c||_&&(p.__html==_.__html||p.__html==t.innerHTML)||(t.innerHTML=p.__html),n.__k=[]):(_&&(t.textContent=``),(D==`foreignObject`||a==`http://www.w3.org/1998/Math/MathML`&&m.test(D))&&(a=`http://www.w3.org/1999/xhtml`),ee(u,h(y)?y:[y],n,r,i,a,o,s,o?o[0]:r.__k&&C(r,0),c,l),o&&o.some(v)),c&&D!=`textarea`||(d=`value`,D==`progress`&&x==null?t.removeAttribute(d):x==null||x===t[d]&&(D!=`progress`||x)||ie(t,d,x,T[d],a),d=`checked`,S!=null&&S!=t[d]&&ie(t,d,S,T[d],a))}else T===E||c&&t.data==E||(t.data=E);return t}function j(t,n,r,i){try{typeof t==`function`?n?n.__x=t(n)||1:(i&&=i.__c||i.__e)&&(n=i.__x)&&(i.__x=null,typeof n==`function`?n():t(null)):t.current=n}catch(t){e.__e(t,r)}}function le(t,n,r){var i,a,o,s;if(e.unmount&&e.unmount(t),!(i=t.ref)||i.current&&i.current!=t.__e||j(i,null,n,t),i=t.__c){if(i.componentWillUnmount)try{i.componentWillUnmount()}catch(t){e.__e(t,n)}i.__P=i.__n=null}if(i=t.__k)for(s=0;s<i.length;s++)i[s]&&le(i[s],n,typeof t.type!=`function`||r&&!t.props.__P);!r&&(i=t.__c)&&(i=i.__z)&&(a=se(i,o=[]))&&(i==t.__e&&o.some(v),v(a),v(i)),r||v(t.__e),t.__e=t.__c=t.__=null}function ue(e,t,n){return this.constructor(e,n)}function M(t,n){var r,i,a,o;e.__&&e.__(t,n),n.nodeType==9&&(n=n.documentElement),i=(r=t&&32&t.__u)?null:n.__k,n.__k=b(x,{children:[t]}),a=[],o=[],oe(n,n.__k,i||f,f,n.namespaceURI,i?null:n.firstChild?g.call(n.childNodes):null,a,i?i.__e:n.firstChild,r,o),k(a,n.__k,o),n.__k.props.children=null}e={__e:function(e,t,n,r){for(var i,o,s;t=t.__;)if((i=t.__c)&&!(1&i.__g)){i.__g|=4;try{if((s=(o=i.constructor)&&o.getDerivedStateFromError)&&i.setState(o.getDerivedStateFromError(e)),i.componentDidCatch&&(i.componentDidCatch(e,r||{}),s=1),s&&8&i.__g)return void(i.__g|=2)}catch(t){e=t}}throw a=0,e}},t=0,n=function(e){return e!=null&&e.constructor===d},S.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=_({},this.state)),typeof e==`function`&&(e=e(_({},n),this.props)),e&&(_(n,e),this.__v&&(t&&this.__k.push(t),E(this)))},S.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),E(this))},S.prototype.render=x,r=[],a=0,o=function(e,t){return e.__v.__b-t.__v.__b},s=Symbol(),c=/(PointerCapture)$|Capture$/i,l=0,u={};var de,N,fe,pe,me=Object.is,he=0,ge=[],_e=[],ve=e,ye=ve.__b,be=ve.__r,xe=ve.diffed,Se=ve.__c,Ce=ve.unmount,we=ve.__;function Te(e,t){ve.__h&&ve.__h(N,e,he||t),he=0;var n=N.__H||(N.__H={__:[],__h:[]});return e>=n.__.length&&n.__.push({}),n.__[e]}function P(e){return he=1,F(Ie,e)}function F(e,t,n){var r=Te(de++,2);if(r.t=e,!r.__c&&(r.__=[n?n(t):Ie(void 0,t),function(e){var t=(r.__N||r.__)[0],n=r.t(t,e);me(t,n)||(r.__N=[n,r.__[1]],r.__c.setState({}))}],r.__c=N,!N.__f)){N.__f=!0;var i=N.shouldComponentUpdate;N.shouldComponentUpdate=function(e,t,n){var r=this.__H;if(!r)return!0;var a=!1,o=this.props!=e;if(r.__.some(function(e){e.__N&&(a=!0,me(e.__[0],e.__N[0])||(o=!0))}),i){var s=i.call(this,e,t,n);return a?s||o:s}return!a||o}}return r.__}function I(e,t){var n=Te(de++,3);!ve.__s&&Fe(n.__H,t)&&(n.__P=!0,n.__=e,n.u=t,N.__H.__h.push(n))}function Ee(e,t){var n=Te(de++,4);!ve.__s&&Fe(n.__H,t)&&(n.__P=!1,n.__=e,n.u=t,N.__h.push(n))}function De(e){return he=5,Oe(function(){return{current:e}},[])}function Oe(e,t){var n=Te(de++,7);return Fe(n.__H,t)&&(n.__=e(),n.__H=t),n.__}function ke(){var e;do{for(;e=_e.shift();)try{Ne(e)}catch(t){ve.__e(t,{__:(e=e.__P)&&e.__v})}for(;e=ge.shift();){var t=e.__H;if(e.__P&&t)try{t.__h.some(Ne),t.__h.some(Pe),t.__h=[]}catch(n){t.__h=[],ve.__e(n,e.__v)}}}while(_e.length)}ve.__b=function(e){N=null,ye&&ye(e)},ve.__=function(e,t){e&&t.__k&&t.__k.__m&&(e.__m=t.__k.__m),we&&we(e,t)},ve.__r=function(e){be&&be(e),de=0;var t=(N=e.__c).__H;t&&(fe==N?N.__h=[]:(t.__h.some(Ne),t.__h.some(Pe),de=0),t.__h=[],t.__.some(function(e){e.__N&&(e.__=e.__N),e.u=e.__N=void 0})),fe=N},ve.diffed=function(e){xe&&xe(e);var t=e.__c;t&&t.__H&&(t.__H.__h.length&&Me(ge.push(t)),t.__H.__.some(function(e){e.u&&(e.__H=e.u)})),fe=N=null},ve.__c=function(e,t){t.some(function(e){try{e.__h.some(Ne),e.__h=e.__h.filter(function(e){return!e.__||Pe(e)})}catch(t){e.__h=[function(){throw t}]}}),Se&&Se(e,t)},ve.unmount=function(e){Ce&&Ce(e);var t,n,r=e.__c;r&&r.__H&&(r.__H.__.some(function(r){try{if(r.__P&&r.__c){if(n===void 0){for(n=e.__;n&&(!n.__c||!n.__c.__P);)n=n.__;n&&=n.__c}r.__P=n,Me(_e.push(r))}else Ne(r)}catch(e){t=e}}),r.__H=void 0,t&&ve.__e(t,r.__v))};var Ae=typeof requestAnimationFrame==`function`;function je(e){var t,n=function(){clearTimeout(r),Ae&&cancelAnimationFrame(t),setTimeout(e)},r=setTimeout(n,35);Ae&&(t=requestAnimationFrame(n))}function Me(e){e!=1&&pe==ve.requestAnimationFrame||((pe=ve.requestAnimationFrame)||je)(ke)}function Ne(e){var t=N,n=e.__c;typeof n==`function`&&(e.__c=void 0,n()),N=t}function Pe(e){var t=N;e.__c=e.__(),N=t}function Fe(e,t){return!e||e.length!=t.length||t.some(function(t,n){return!me(t,e[n])})}function Ie(e,t){return typeof t==`function`?t(e):t}var Le=Symbol.for(`preact-signals`);function Re(){if(We>1)We--;else{var e,t=!1;for((function(){var e=Je;for(Je=void 0;e!==void 0;){var t=e.S;if(t.v===e.v)for(var n=t.t;n!==void 0;n=n.x)n.i===e.i&&(n.i=t.i);e=e.o}})();Ue!==void 0;){var n=Ue;for(Ue=void 0,Ge++;n!==void 0;){var r=n.u;if(n.u=void 0,n.f&=-3,!(8&n.f)&&Qe(n))try{n.c()}catch(n){t||=(e=n,!0)}n=r}}if(Ge=0,We--,t)throw e}}function ze(e){if(We>0)return e();qe=++Ke,We++;try{return e()}finally{Re()}}var Be,Ve=void 0;function He(e){var t=Ve,n=Be;Ve=void 0,Be=void 0;try{return e()}finally{Ve=t,Be=n}}var Ue=void 0,We=0,Ge=0,Ke=0,qe=0,Je=void 0,Ye=0;function Xe(e){if(Ve!==void 0){var t=e.n;if(t===void 0||t.t!==Ve)return t={i:0,S:e,p:Ve.s,n:void 0,t:Ve,e:void 0,x:void 0,r:t},Ve.s!==void 0&&(Ve.s.n=t),Ve.s=t,e.n=t,32&Ve.f&&e.S(t),t;if(t.i===-1)return t.i=0,t.n!==void 0&&(t.n.p=t.p,t.p!==void 0&&(t.p.n=t.n),t.p=Ve.s,t.n=void 0,Ve.s.n=t,Ve.s=t),t}}function Ze(e,t){this.v=e,this.i=0,this.n=void 0,this.t=void 0,this.l=0,this.W=t?.watched,this.Z=t?.unwatched,this.name=t?.name}Ze.prototype.brand=Le,Ze.prototype.h=function(){return!0},Ze.prototype.S=function(e){var t=this,n=this.t;n!==e&&e.e===void 0&&(e.x=n,this.t=e,n===void 0?He(function(){var e;(e=t.W)==null||e.call(t)}):n.e=e)},Ze.prototype.U=function(e){var t=this;if(this.t!==void 0){var n=e.e,r=e.x;n!==void 0&&(n.x=r,e.e=void 0),r!==void 0&&(r.e=n,e.x=void 0),e===this.t&&(this.t=r,r===void 0&&He(function(){var e;(e=t.Z)==null||e.call(t)}))}},Ze.prototype.subscribe=function(e){var t=this;return st(function(){var n=t.value;He(function(){return e(n)})},{name:`sub`})},Ze.prototype.valueOf=function(){return this.value},Ze.prototype.toString=function(){return this.value+``},Ze.prototype.toJSON=function(){return this.value},Ze.prototype.peek=function(){var e=this;return He(function(){return e.value})},Object.defineProperty(Ze.prototype,"value",{get:function(){var e=Xe(this);return e!==void 0&&(e.i=this.i),this.v},set:function(e){if(e!==this.v){if(Ge>100)throw Error(`Cycle detected`);(function(e){We!==0&&Ge===0&&e.l!==qe&&(e.l=qe,Je={S:e,v:e.v,i:e.i,o:Je})})(this),this.v=e,this.i++,Ye++,We++;try{for(var t=this.t;t!==void 0;t=t.x)t.t.N()}finally{Re()}}}});function L(e,t){return new Ze(e,t)}function Qe(e){for(var t=e.s;t!==void 0;t=t.n)if(t.S.i!==t.i||!t.S.h()||t.S.i!==t.i)return!0;return!1}function $e(e){for(var t=e.s;t!==void 0;t=t.n){var n=t.S.n;if(n!==void 0&&(t.r=n),t.S.n=t,t.i=-1,t.n===void 0){e.s=t;break}}}function et(e){for(var t=e.s,n=void 0;t!==void 0;){var r=t.p;t.i===-1?(t.S.U(t),r!==void 0&&(r.n=t.n),t.n!==void 0&&(t.n.p=r)):n=t,t.S.n=t.r,t.r!==void 0&&(t.r=void 0),t=r}e.s=n}function tt(e,t){Ze.call(this,void 0,t),this.x=e,this.s=void 0,this.g=Ye-1,this.f=4}tt.prototype=new Ze,tt.prototype.h=function(){if(this.f&=-3,1&this.f)return!1;if((36&this.f)==32||(this.f&=-5,this.g===Ye))return!0;if(this.g=Ye,this.f|=1,this.i>0&&!Qe(this))return this.f&=-2,!0;var e=Ve;try{$e(this),Ve=this;var t=this.x();(16&this.f||this.v!==t||this.i===0)&&(this.v=t,this.f&=-17,this.i++)}catch(e){this.v=e,this.f|=16,this.i++}return Ve=e,et(this),this.f&=-2,!0},tt.prototype.S=function(e){if(this.t===void 0){this.f|=36;for(var t=this.s;t!==void 0;t=t.n)t.S.S(t)}Ze.prototype.S.call(this,e)},tt.prototype.U=function(e){if(this.t!==void 0&&(Ze.prototype.U.call(this,e),this.t===void 0)){this.f&=-33;for(var t=this.s;t!==void 0;t=t.n)t.S.U(t)}},tt.prototype.N=function(){if(!(2&this.f)){this.f|=6;for(var e=this.t;e!==void 0;e=e.x)e.t.N()}},Object.defineProperty(tt.prototype,"value",{get:function(){if(1&this.f)throw Error(`Cycle detected`);var e=Xe(this);if(this.h(),e!==void 0&&(e.i=this.i),16&this.f)throw this.v;return this.v}});function nt(e,t){return new tt(e,t)}function rt(e){var t=e.j;if(e.j=void 0,typeof t==`function`){We++;var n=Ve;Ve=void 0;try{t()}catch(t){throw e.f&=-2,e.f|=8,it(e),t}finally{Ve=n,Re()}}}function it(e){for(var t=e.s;t!==void 0;t=t.n)t.S.U(t);e.x=void 0,e.s=void 0,rt(e)}function at(e){if(Ve!==this)throw Error(`Out-of-order effect`);et(this),Ve=e,this.f&=-2;try{8&this.f&&it(this)}finally{Re()}}function ot(e,t){this.x=e,this.j=void 0,this.s=void 0,this.u=void 0,this.f=32,this.name=t?.name,Be&&Be.push(this)}ot.prototype.c=function(){var e=this.S();try{if(8&this.f||this.x===void 0)return;var t=this.x();typeof t==`function`&&(this.j=t)}finally{e()}},ot.prototype.S=function(){if(1&this.f)throw Error(`Cycle detected`);this.f|=1,this.f&=-9,rt(this),$e(this),We++;var e=Ve;return Ve=this,at.bind(this,e)},ot.prototype.N=function(){2&this.f||(this.f|=2,this.u=Ue,Ue=this)},ot.prototype.d=function(){this.f|=8,1&this.f||it(this)},ot.prototype.dispose=function(){this.d()};function st(e,t){var n=new ot(e,t);try{n.c()}catch(e){throw n.d(),e}var r=n.d.bind(n);return r[Symbol.dispose]=r,r}var ct,lt,ut,dt=typeof window<`u`&&!!window.__PREACT_SIGNALS_DEVTOOLS__,ft=[],pt=[];st(function(){ct=this.N})();function mt(t,n){e[t]=n.bind(null,e[t]||function(){})}function ht(e){if(ut){var t=ut;ut=void 0,t()}ut=e&&e.S()}function gt(e){var t=this,r=e.data,i=vt(r);i.name=`ReactiveDom`,i.value=r;var a=Oe(function(){for(var e=t,r=t.__v;r=r.__;)if(r.__c){r.__c.__$f|=4;break}var a=nt(function(){var e=i.value.value;return e===0?0:!0===e?``:e||``}),o=nt(function(){return!Array.isArray(a.value)&&!n(a.value)}),s=st(function(){if(this.N=Tt,o.value){var t=a.value;e.__v&&e.__v.__e&&e.__v.__e.nodeType===3&&(e.__v.__e.data=t)}}),c=t.__$u.d;return t.__$u.d=function(){s(),c.call(this)},[o,a]},[]),o=a[0],s=a[1];return o.value?s.peek():s.value}gt.displayName=`ReactiveTextNode`,Object.defineProperties(Ze.prototype,{constructor:{configurable:!0,value:y(x,null).constructor},type:{configurable:!0,value:gt},props:{configurable:!0,get:function(){var e=this;return{data:{get value(){return e.value}}}}},__b:{configurable:!0,value:1}}),mt(`__b`,function(e,t){if(ht(),lt=void 0,typeof t.type==`string`){var n,r=t.props;for(var i in r)if(i!==`children`){var a=r[i];a instanceof Ze&&(n||(t.__np=n={}),n[i]=a,r[i]=a.peek())}}e(t)}),mt(`__r`,function(e,t){if(e(t),t.type!==x){ht();var n,r=t.__c;r&&(r.__$f&=-2,(n=r.__$u)===void 0&&(r.__$u=n=function(e,t){var n;return st(function(){n=this},{name:t}),n.c=e,n}(function(e){return function(){var t;dt&&((t=this.y)==null||t.call(this)),e.__$f|=1,e.setState({})}}(r),typeof t.type==`function`?t.type.displayName||t.type.name:``))),lt=r,ht(n)}}),mt(`__e`,function(e,t,n,r){ht(),lt=void 0,e(t,n,r)}),mt(`diffed`,function(e,t){ht(),lt=void 0;var n;if(typeof t.type==`string`&&(n=t.__e)){var r=t.__np,i=t.props,a=n.U;if(a)for(var o in a){var s=a[o];s===void 0||r&&o in r||(s.d(),a[o]=void 0)}if(r)for(var c in a||(a={},n.U=a),r){var l=a[c],u=r[c];l===void 0?(l=_t(n,c,u,i),a[c]=l):l.o(u,i)}}e(t)});function _t(e,t,n,r){var i=t in e&&e.ownerSVGElement===void 0,a=L(n);return{o:function(e,t){a.value=e,r=t},d:st(function(){this.N=Tt;var n=a.value.value;r[t]!==n&&(r[t]=n,i?e[t]=n:n!=null&&(!1!==n||t[4]===`-`)?e.setAttribute(t,n):e.removeAttribute(t))})}}mt(`unmount`,function(e,t){if(typeof t.type==`string`){var n=t.__e;if(n){var r=n.U;if(r)for(var i in n.U=void 0,r){var a=r[i];a&&a.d()}}var o=t.__np;if(o){var s=t.props;for(var c in o)s[c]=o[c]}t.__np=void 0}else{var l=t.__c;if(l){l.__$f|=8;var u=l.__$u;u&&(l.__$u=void 0,u.d())}}e(t)}),mt(`__h`,function(e,t,n,r){r<3&&(t.__$f|=2),e(t,n,r)}),S.prototype.shouldComponentUpdate=function(e,t){if(this.__R)return!0;var n=this.__$u,r=n&&n.s!==void 0;for(var i in t)return!0;if(this.__f||typeof this.u==`boolean`&&!0===this.u){var a=2&this.__$f;if(!(r||a||4&this.__$f)||1&this.__$f)return!0}else if(!(r||4&this.__$f)||3&this.__$f)return!0;for(var o in e)if(o!==`__source`&&e[o]!==this.props[o])return!0;for(var s in this.props)if(!(s in e))return!0;return!1};function vt(e,t){return Oe(function(){return L(e,t)},[])}function yt(e,t){var n=De(e);return n.current=e,lt.__$f|=4,Oe(function(){return nt(function(){return n.current()},t)},[])}var bt=typeof requestAnimationFrame>`u`?setTimeout:function(e){var t=function(){clearTimeout(n),cancelAnimationFrame(r),e()},n=setTimeout(t,35),r=requestAnimationFrame(t)},xt=function(e){queueMicrotask(function(){queueMicrotask(e)})};function St(){ze(function(){for(var e;e=ft.shift();)ct.call(e)})}function Ct(){ft.push(this)===1&&(e.requestAnimationFrame||bt)(St)}function wt(){ze(function(){for(var e;e=pt.shift();)ct.call(e)})}function Tt(){pt.push(this)===1&&(e.requestAnimationFrame||xt)(wt)}function Et(e,t){var n=De(e);n.current=e;var r=lt;I(function(){return st(function(){if(this.N=Ct,!(r&&8&r.__$f))return n.current()},t)},[])}var Dt=L(0),Ot=L(!0),kt=L(!1),At=L(0),jt=L(Date.now()),Mt=L(document.hidden);function Nt(){Dt.value=Date.now(),Ot.value||(Ot.value=!0,At.value+=1)}function Pt(){Ot.value=!1}setInterval(()=>{document.hidden||(jt.value=Date.now())},1e3),document.addEventListener(`visibilitychange`,()=>{Mt.value=document.hidden,jt.value=Date.now()});var Ft=function(e,t,n,r){var i;t[0]=0;for(var a=1;a<t.length;a++){var o=t[a++],s=t[a]?(t[0]|=o?1:2,n[t[a++]]):t[++a];o===3?r[0]=s:o===4?r[1]=Object.assign(r[1]||{},s):o===5?(r[1]=r[1]||{})[t[++a]]=s:o===6?r[1][t[++a]]+=s+``:o?(i=e.apply(s,Ft(e,s,n,[``,null])),r.push(i),s[0]?t[0]|=2:(t[a-2]=0,t[a]=i)):r.push(s)}return r},It=new Map;function Lt(e){var t=It.get(this);return t||(t=new Map,It.set(this,t)),(t=Ft(this,t.get(e)||(t.set(e,t=function(e){for(var t,n,r=1,i=``,a=``,o=[0],s=function(e){r===1&&(e||(i=i.replace(/^\s*\n\s*|\s*\n\s*$/g,``)))?o.push(0,e,i):r===3&&(e||i)?(o.push(3,e,i),r=2):r===2&&i===`...`&&e?o.push(4,e,0):r===2&&i&&!e?o.push(5,0,!0,i):r>=5&&((i||!e&&r===5)&&(o.push(r,0,i,n),r=6),e&&(o.push(r,e,0,n),r=6)),i=``},c=0;c<e.length;c++){c&&(r===1&&s(),s(c));for(var l=0;l<e[c].length;l++)t=e[c][l],r===1?t===`<`?(s(),o=[o],r=3):i+=t:r===4?i===`--`&&t===`>`?(r=1,i=``):i=t+i[0]:a?t===a?a=``:i+=t:t===`"`||t===`'`?a=t:t===`>`?(s(),r=1):r&&(t===`=`?(r=5,n=i,i=``):t===`/`&&(r<5||e[c][l+1]===`>`)?(s(),r===3&&(o=o[0]),r=o,(o=o[0]).push(2,0,r),r=0):t===` `||t===`	`||t===`
`||t===`\r`?(s(),r=2):i+=t),r===3&&i===`!--`&&(r=4,o=o[0])}return s(),o}(e)),t),arguments,[])).length>1?t:t[0]}var R=Lt.bind(y),z=(...e)=>e.filter(Boolean).join(` `),Rt=L([]),zt=L(!1),Bt=``,Vt=null,Ht=e=>e instanceof HTMLElement&&(e.isContentEditable||/^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName))&&e.type!==`checkbox`;addEventListener(`keydown`,e=>{if(e.ctrlKey||e.metaKey||e.altKey||e.defaultPrevented)return;if(e.key===`Escape`&&Ht(e.target)){e.target.blur();return}if(Ht(e.target)||document.querySelector(`dialog[open]:not(.help)`))return;let t=Bt?`${Bt} ${e.key}`:e.key;Bt=``;let n=e.target.closest?.(`a, button, summary`);if(e.key===`Enter`&&n)return;let r=Rt.value.findLast(e=>e.key===t);r?(e.preventDefault(),r.action()):Rt.value.some(t=>t.key.startsWith(`${e.key} `))&&(Bt=e.key,clearTimeout(Vt),Vt=setTimeout(()=>{Bt=``},1200))});function Ut(e){let t=De(e);t.current=e,I(()=>{let n=e.map(({key:e,does:n},r)=>({key:e,does:n,action:()=>t.current[r].action()}));return Rt.value=[...Rt.value,...n],()=>{Rt.value=Rt.value.filter(e=>!n.includes(e))}},[e.map(({key:e})=>e).join()])}function Wt(){return zt.value?R`<${Gt} />`:null}function Gt(){let e=De(null);I(()=>e.current?.showModal(),[]);let t=()=>{zt.value=!1};return R`<dialog
ref=${e}
class="dialog help"
aria-labelledby="help-title"
onClose=${t}
onClick=${n=>n.target===e.current&&t()}
>
<h2 id="help-title">Keys</h2>
<dl class="keys">
${Rt.value.map(({key:e,does:t})=>R`<div key=${e}>
<dt>${e.split(` `).map(e=>R`<kbd key=${e}>${e}</kbd>`)}</dt>
<dd>${t}</dd>
</div>`)}
</dl>
<div class="dialog-actions"><button type="button" class="button" onClick=${t}>Close</button></div>
</dialog>`}var Kt=[[`d`,86400],[`h`,3600],[`m`,60]];function qt(e){if(e==null||!Number.isFinite(e))return`–`;if(e<0&&(e=0),e===0)return`0 s`;if(e<.9995)return`${Math.max(1,Math.round(e*1e3))} ms`;if(e<10)return`${e.toFixed(1)} s`;let t=Math.round(e);if(t<60)return`${t} s`;for(let[e,[n,r]]of Kt.entries()){if(t<r)continue;let[i,a]=Kt[e+1]??[`s`,1],o=Math.floor(t%r/a);return`${Math.floor(t/r)} ${n} ${String(o).padStart(i===`h`?1:2,`0`)} ${i}`}return`${t} s`}function Jt(e){if(!e)return;let t=Number.parseFloat(e);return Number.isNaN(t)?void 0:t}function Yt(e){if(!e)return;let t=Date.parse(e);return Number.isNaN(t)?void 0:t}function Xt(e,t){if(e===void 0)return`–`;let n=Math.max(0,(t-e)/1e3);return n<1?`now`:n<60?`${Math.floor(n)} s ago`:n<3600?`${Math.floor(n/60)} m ago`:n<86400?`${Math.floor(n/3600)} h ago`:`${Math.floor(n/86400)} d ago`}function Zt(e){if(e===void 0)return`–`;let t=new Date(e),n=e=>String(e).padStart(2,`0`);return`${t.getFullYear()}-${n(t.getMonth()+1)}-${n(t.getDate())} ${n(t.getHours())}:${n(t.getMinutes())}:${n(t.getSeconds())}`}function B(e){if(e==null||e===``)return`–`;let t=Qt(e);if(Number.isNaN(t))return`NaN`;if(!Number.isFinite(t))return t>0?`∞`:`−∞`;let n=Math.abs(t);return n===0?`0`:Number.isInteger(t)&&n<1e9?t.toLocaleString(`en-US`):n<1e-4||n>=1e9?t.toExponential(2):n>=1e3?t.toLocaleString(`en-US`,{maximumFractionDigits:0}):String(Number(t.toPrecision(4)))}function Qt(e){return typeof e==`number`?e:e===`Infinity`?1/0:e===`-Infinity`?-1/0:e==null||e===``?NaN:Number(e)}function $t(e,t){if(t==null)return`–`;let n=Qt(t);return en(e)&&Number.isFinite(n)?`${(n*100).toFixed(n===1?0:1)}%`:B(n)}function en(e){return/(^|\.)(accuracy|top\d+|hidden_fraction|utilization|memory_utilization)$/.test(e)}function tn(e){return/(accuracy|top\d+|samples_per_s|reward|score|f1|auc)$/.test(e)?`more`:/(loss|error|perplexity|ppl|[wc]er|mse|mae|seconds|bytes)$/.test(e)?`less`:``}var nn=[`B`,`KiB`,`MiB`,`GiB`,`TiB`,`PiB`];function rn(e){let t=Qt(e);if(Number.isNaN(t))return`–`;let n=0;for(;t>=1024&&n+1<nn.length;)t/=1024,n+=1;return`${n===0||t>=100?Math.round(t):t.toFixed(1)} ${nn[n]}`}function an(e,t){return(e??``).replace(t,``).toLowerCase().replaceAll(`_`,` `)}var on=e=>an(e,`JOB_STATE_`)||`unknown`,sn=e=>/QUEUED|STARTING|RUNNING|STOPPING|SUSPENDED/.test(e??``),V=e=>(e??``).split(`/`).pop(),H=(e,t,n=`${t}s`)=>`${B(e)} ${Number(e)===1?t:n}`,cn={129:`SIGHUP`,130:`SIGINT`,131:`SIGQUIT`,132:`SIGILL`,134:`SIGABRT`,135:`SIGBUS`,136:`SIGFPE`,137:`SIGKILL`,139:`SIGSEGV`,141:`SIGPIPE`,143:`SIGTERM`};function ln(e){if(!e)return``;let t=cn[e];return t?`killed by ${t} (exit code ${e})`:`exit code ${e}`}var un=()=>({path:location.pathname,params:new URLSearchParams(location.search)}),dn=L(un());addEventListener(`popstate`,()=>{dn.value=un()});function U(e,{replace:t=!1}={}){history[t?`replaceState`:`pushState`](null,``,e),dn.value=un(),t||scrollTo(0,0)}var W=e=>dn.value.params.get(e)??``;function fn(e,t=dn.value.path){let n=new URLSearchParams(dn.value.params);for(let[t,r]of Object.entries(e))r===``||r==null||r===!1?n.delete(t):n.set(t,String(r));let r=n.toString().replaceAll(`%2C`,`,`).replaceAll(`%3A`,`:`);return r===``?t:`${t}?${r}`}var G=e=>U(fn(e),{replace:!0}),pn=e=>e?e.split(`,`).filter(e=>e!==``):[];function K({href:e,children:t,...n}){return R`<a href=${e} onClick=${t=>{t.defaultPrevented||t.button!==0||t.metaKey||t.ctrlKey||t.shiftKey||t.altKey||(t.preventDefault(),U(e))}} ...${n}>${t}</a>`}var mn=e=>`/jobs/${e.split(`/`)[1]}`,hn=class extends Error{constructor(e,t){super(t?.message||`the server answered with status ${e}`),this.status=e,this.code=t?.code??`unknown`;let n=t?.details??[],r=e=>n.find(t=>t.type===e)?.debug;this.reason=r(`google.rpc.ErrorInfo`)?.reason??``,this.violations=r(`google.rpc.BadRequest`)?.fieldViolations??[]}},gn=e=>`/trainyard.v1.${e}`;async function _n(e){let t=null;try{t=await e.json()}catch{}return e.status===401&&(kt.value=!0),new hn(e.status,t)}var vn=e=>!(e instanceof hn)||[502,503,504].includes(e.status)||e.code===`unavailable`,yn=3e4;async function bn(e,t={},{signal:n}={}){let r=AbortSignal.timeout(yn),i;try{i=await fetch(gn(e),{method:`POST`,headers:{"Content-Type":`application/json`},body:JSON.stringify(t),signal:n?AbortSignal.any([n,r]):r})}catch(e){throw n?.aborted||Pt(),e}if(i.ok){let e=await i.json();return Nt(),e}let a=await _n(i);throw vn(a)?Pt():Nt(),a}function xn(e){return e instanceof hn?e.message:`The server does not answer.`}async function Sn(e,t,n){let r=Array(e.length),i=0;return await Promise.all(Array.from({length:Math.min(t,e.length)},async()=>{for(;i<e.length;){let t=i++;r[t]=await n(e[t],t)}})),r}var Cn=L(null),wn=L(``);async function Tn(e){wn.value=await En(e)}async function En(e){try{let t=await fetch(`/session`,{method:`POST`,headers:{"Content-Type":`application/json`},body:JSON.stringify({token:e.trim()})});return t.ok?(kt.value=!1,Cn.value=await bn(`AccessService/WhoAmI`),``):(await t.json().catch(()=>({}))).message??`The server refuses this token.`}catch(e){return kt.value?`The token is not valid: ${e.message}`:`The server does not answer.`}}async function Dn(){try{Cn.value=await bn(`AccessService/WhoAmI`)}catch{}}async function On(){try{await fetch(`/session`,{method:`DELETE`})}finally{Cn.value=null,kt.value=!0}}var kn=[`ROLE_NONE`,`ROLE_VIEWER`,`ROLE_SUBMITTER`,`ROLE_OPERATOR`,`ROLE_ADMIN`],An=()=>kn.indexOf(Cn.value?.role),jn=()=>An()>=kn.indexOf(`ROLE_SUBMITTER`),Mn=e=>An()>=kn.indexOf(`ROLE_OPERATOR`)||jn()&&e===Cn.value?.user;function q(e,t,{key:n=``,everyMs:r,isOff:i=!1}={}){let[a,o]=P({data:null,error:null}),[s,c]=P(0),l=De(t);return l.current=t,I(()=>{if(i)return;let t=new AbortController,n=async()=>{try{let n=await bn(e,l.current,{signal:t.signal});t.signal.aborted||o({data:n,error:null})}catch(e){t.signal.aborted||o(t=>({data:t.data,error:e}))}},a=setTimeout(n,0),s=r?setInterval(()=>!Mt.value&&n(),r):null;return()=>{t.abort(),clearTimeout(a),clearInterval(s)}},[e,JSON.stringify(t),n,s,i,At.value]),{...a,reload:()=>c(e=>e+1)}}function Nn(e,t){let[n,r]=P(e),i=De(0);return I(()=>{let n=Math.max(0,i.current+t-Date.now()),a=setTimeout(()=>{i.current=Date.now(),r(e)},n);return()=>clearTimeout(a)},[e,t]),n}var Pn=RegExp(`^(PRECISION|NORMALIZE|REPRODUCIBILITY|PIPELINE_SCHEDULE|STEM|SWEEP_SEARCH|PROGRAM_RANKS|ISOLATION|NOTIFY_EVENT|ON_CORRUPT)_([A-Z0-9_]+)$`),Fn=/^(name|description|tags|project|program|notify|outputs|retain|parameters)$/;function In(e,t=``){if(Fn.test(t))return e;if(Array.isArray(e))return e.map(e=>In(e,``));if(typeof e==`object`&&e){let n=Object.keys(e);return t===`every`&&n.length===1?Ln(n[0],e[n[0]]):n.length===1&&n[0]===`bytes`?zn(Number(e.bytes)):Object.fromEntries(Object.entries(e).map(([e,t])=>[e,In(t,e)]))}if(typeof e!=`string`)return e;if(/^-?\d+$/.test(e)&&Number.isSafeInteger(Number(e)))return Number(e);if(/^\d+(\.\d+)?s$/.test(e))return Rn(Number.parseFloat(e));let n=Pn.exec(e);return n?n[2].toLowerCase():e}function Ln(e,t){if(e===`automatic`)return`auto`;if(e===`time`)return Rn(Number.parseFloat(t));let n=Number(t);return`${n} ${n===1?e.slice(0,-1):e}`}function Rn(e){for(let[t,n]of[[`d`,86400],[`h`,3600],[`min`,60]])if(e>=n&&e%n===0)return`${e/n} ${t}`;return e>=1||e===0?`${e} s`:`${Math.round(e*1e3)} ms`}function zn(e){for(let[t,n]of[[`TiB`,2**40],[`GiB`,2**30],[`MiB`,2**20],[`KiB`,1024]])if(e>=n&&e%n===0)return`${e/n} ${t}`;return`${e} B`}function Bn(e,t=``,n={}){if(Array.isArray(e)&&e.some(e=>typeof e==`object`&&!!e))e.forEach((e,r)=>Bn(e,`${t}[${r}]`,n));else if(typeof e==`object`&&e&&!Array.isArray(e)){let r=Object.keys(e);r.length===0&&t!==``&&(n[t]=e);for(let i of r)Bn(e[i],t===``?i:`${t}.${i}`,n)}else t!==``&&(n[t]=e);return n}function Vn(e){return e===void 0?``:typeof e==`string`?e:JSON.stringify(e)}function Hn(e){let t=e.trim();if(t===``)return``;try{return JSON.parse(t),t}catch{return JSON.stringify(e)}}var Un=e=>Object.keys(e?.model??{})[0]??(e?.program?`program`:``),Wn=12;function Gn(e,t,n){let[r,i]=P({top:0,size:900});Ee(()=>{let t=e.current;if(!t)return;let r=0,a=()=>{r=0,i(e=>{let r={top:t.scrollTop,size:t.clientHeight};return e.size===r.size&&Math.floor(e.top/n)===Math.floor(r.top/n)?e:r})},o=()=>{r===0&&(r=requestAnimationFrame(a))};a(),t.addEventListener(`scroll`,o,{passive:!0});let s=new ResizeObserver(o);return s.observe(t),()=>{t.removeEventListener(`scroll`,o),s.disconnect(),cancelAnimationFrame(r)}},[n]);let a=Math.max(0,Math.min(Math.floor(r.top/n)-Wn,t-1)),o=Math.min(t,Math.ceil((r.top+r.size)/n)+Wn);return{from:Math.max(0,a),to:o}}function Kn(e,t,n,r=0){if(!e)return;let i=t*n;i<e.scrollTop?e.scrollTop=i:i+n+r>e.scrollTop+e.clientHeight&&(e.scrollTop=i+n+r-e.clientHeight)}function qn(e,t,n){I(()=>{let r=setTimeout(()=>n(e),t);return()=>clearTimeout(r)},[e])}function Jn({state:e,large:t}){let n=on(e);return R`<span class=${z(`state`,`state-${n}`,t&&`state-large`)}>${n}</span>`}function Yn({row:e,large:t}){if(!e.totalSteps)return e.step>0?R`<span class="num">${B(e.step)}</span>`:``;let n=Math.min(1,e.step/e.totalSteps);return R` <span
class=${z(`progress`,t&&`progress-large`,`bar-${on(e.state)}`)}
role="progressbar"
aria-valuemin="0"
aria-valuemax=${e.totalSteps}
aria-valuenow=${e.step}
aria-label="progress"
title=${`step ${B(e.step)} of ${B(e.totalSteps)}`}
>
<span class="progress-track"><span class="progress-fill" style=${{width:`${n*100}%`}}></span></span>
<span class="progress-text"
>${Math.floor(n*100)}%${t&&sn(e.state)&&e.eta!==void 0?` · ${qt(e.eta)} left`:``}</span
>
</span>`}function Xn({verified:e}){if(!e?.runs)return null;let t=e.reproduced??0,n=an(e.last_result,`VERIFICATION_RESULT_`),r=`run again ${e.runs} times, reproduced ${t}; the last was ${n}`;return R`<span
class=${z(`verified`,t<e.runs&&`verified-not`)}
title=${r}
aria-label=${r}
>${t===e.runs?`✓`:`≠`} ${t}/${e.runs}</span
>`}function J({error:e,children:t}){return e?R`<div class="error-box" role="alert">
<p class="error-text">${xn(e)}</p>
${t}
</div>`:null}function Y({title:e,children:t}){return R`<div class="empty">
<p class="empty-title">${e}</p>
<div class="empty-text">${t}</div>
</div>`}var Zn=({ms:e})=>R`<time title=${e?new Date(e).toISOString():``}>${Zt(e)}</time>`;function Qn({label:e,title:t,children:n,align:r,kind:i=`button`}){let[a,o]=P(!1),s=De(null);return I(()=>{if(!a)return;let e=e=>!s.current?.contains(e.target)&&o(!1),t=e=>{e.key===`Escape`&&(e.stopPropagation(),o(!1),s.current?.querySelector(`button`)?.focus())};return document.addEventListener(`pointerdown`,e),document.addEventListener(`keydown`,t,!0),()=>{document.removeEventListener(`pointerdown`,e),document.removeEventListener(`keydown`,t,!0)}},[a]),R`<span class="menu" ref=${s}>
<button
type="button"
class=${i}
aria-expanded=${a}
title=${t}
aria-label=${t}
onClick=${()=>o(!a)}
>
${e}
</button>
${a&&R`<div
class=${z(`menu-panel`,r===`right`&&`menu-right`)}
onClick=${e=>e.target.closest(`[data-close]`)&&o(!1)}
>
${n}
</div>`}
</span>`}function $n({title:e,text:t,action:n,kind:r,onYes:i,onNo:a,children:o}){let s=De(null),[c,l]=P(null),[u,d]=P(!1);return I(()=>s.current?.showModal(),[]),R`<dialog ref=${s} class="dialog" aria-labelledby="confirm-title" onCancel=${a} onClose=${a}>
<h2 id="confirm-title">${e}</h2>
<p>${t}</p>
${o}
<${J} error=${c} />
<div class="dialog-actions">
<button type="button" class="button" onClick=${a}>Go back</button>
<button type="button" class=${z(`button`,r??`button-primary`)} disabled=${u} onClick=${async()=>{d(!0),l(null);try{await i()}catch(e){l(e),d(!1)}}}>
${n}
</button>
</div>
</dialog>`}function er(e,t,n){let r=t instanceof Blob?t:new Blob([t],{type:n}),i=document.createElement(`a`);i.href=URL.createObjectURL(r),i.download=e,i.click(),setTimeout(()=>URL.revokeObjectURL(i.href),1e4)}var tr=e=>e.name.split(`/`)[1];function nr(){let[e,t]=P(W(`q`));qn(e,250,e=>e!==W(`q`)&&G({q:e}));let{data:n,error:r}=q(`SpecService/ListSavedSpecs`,{page_size:1e3,text:W(`q`)}),i=n?.specs??[];return R`<main class="view" id="main">
<div class="view-head">
<h1>Saved specs</h1>
<span class="spacer"></span>
<input
class="input log-search"
type="search"
placeholder="Find a spec"
aria-label="Find a spec"
value=${e}
onInput=${e=>t(e.target.value)}
/>
</div>
${r&&!n&&R`<${Y} title="The specs cannot be shown">${xn(r)}</${Y}>`}
${n&&i.length===0&&R`<${Y} title="No saved specs">Save the spec of a job:
<pre class="command">trainyard specs save 12 NAME</pre></${Y}>`}
${i.length>0&&R`<section class="panel scroll-x" aria-label="Saved specs">
<table class="table specs-table">
<thead>
<tr>
<th scope="col">Name</th>
<th scope="col">By</th>
<th scope="col">Model</th>
<th scope="col">Data set</th>
<th scope="col">Note</th>
<th scope="col">Result</th>
</tr>
</thead>
<tbody>
${i.map(e=>{let t=Object.entries(e.result?.final_metrics??{}).filter(([e])=>e.startsWith(`test.`)).sort()[0];return R`<tr key=${e.name}><td class="nowrap"><${K} class="row-link"
href=${`/specs/${tr(e)}`}>${tr(e)}</${K}>
<span class="dim"> @${V(e.name)}</span>${(e.tags??[]).map(e=>R`<span class="tag" key=${e}>${e}</span>`)}</td>
<td class="nowrap">${e.user}</td><td>${e.model}</td><td>${e.dataset}</td>
<td class="spec-note"><p>${e.note}</p></td><td
class="nowrap">${t&&`${t[0]} ${$t(...t)}`}</td></tr>`})}
</tbody>
</table>
</section>`}
</main>`}function rr({name:e}){let t=W(`version`),n=q(`SpecService/ListSavedSpecs`,{parent:`specs/${e}`}),{data:r,error:i}=q(`SpecService/GetSavedSpec`,{name:`specs/${e}${t?`/versions/${t}`:``}`}),a=Oe(()=>Bn(In(r?.resolved_spec??r?.spec??{})),[r]),o=Oe(()=>Bn(In(r?.spec??{})),[r]);if(!r)return R`<main class="view" id="main">
${i?R`<${Y} title="The spec cannot be shown">${xn(i)}</${Y}>`:R`<div class="loading">Loading</div>`}
</main>`;let s=V(r.name);return R`<main class="view" id="main">
<p class="crumbs"><${K} href="/specs">Saved specs</${K}> / ${e}</p>
<div class="view-head"><h1>${e}</h1><label class="control">Version
<select class="select" value=${s} onChange=${e=>G({version:e.target.value})}>
${(n.data?.specs??[r]).map(e=>R`<option key=${e.name} value=${V(e.name)}>${V(e.name)}</option>`)}
</select></label><span class="spacer"></span>
<button type="button" class="button"
onClick=${()=>er(`${e}-${s}.json`,JSON.stringify(In(r.spec),null,2),`application/json`)}
>Save as JSON</button></div>
<div class="grid-2"><section class="panel" aria-label="Fields"><table class="table config-table"><tbody>
${Object.entries(a).map(([e,t])=>R`<tr key=${e}>
<th scope="row" class="mono">${e}</th>
<td class=${e in o?`mono chosen`:`mono dim`}>${Vn(t)}</td>
</tr>`)}</tbody></table></section>
<div class="stack"><section class="panel panel-body" aria-label="About"><dl class="facts"><div><dt>By</dt>
<dd>${r.user}</dd></div>
<div><dt>Saved</dt><dd>${Zt(Yt(r.create_time))}</dd></div>
${r.result?.job&&R`<div><dt>Of job</dt><dd><${K} href=${`/${r.result.job}`}>${V(r.result.job)}</${K}>
</dd></div>`}
${Object.entries(r.result?.final_metrics??{}).slice(0,4).map(([e,t])=>R`<div key=${e}>
<dt>${e}</dt>
<dd>${$t(e,t)}</dd>
</div>`)}</dl>
${r.note&&R`<p class="note-text spec-about">${r.note}</p>`}
<p>Run it from a terminal:</p><pre class="command">trainyard run ${e}@${s}</pre></section></div></div>
</main>`}var ir=e=>Number(e?.checkpoints??0)+Number(e?.logs??0)+Number(e?.metrics??0);function ar(){let e=W(`by`)===`project`?`project`:`user`,t=q(`SharingService/ListUsage`,{group:e===`project`?`USAGE_GROUP_PROJECT`:`USAGE_GROUP_USER`,largest_jobs:15},{everyMs:15e3}),n=q(`SharingService/ListShares`,{},{everyMs:15e3}),r=t.data?.usage??[],i=Math.max(1,...r.map(e=>Jt(e.device_time)??0)),a=t.data?.largest_jobs??[];return R`<main class="view" id="main">
<div class="view-head">
<h1>Usage</h1>
<span class="spacer"></span>
<div class="chips" role="group" aria-label="Added up">
${[`user`,`project`].map(t=>R`<button
type="button"
key=${t}
class=${z(`chip`,e===t&&`chip-on`)}
aria-pressed=${e===t}
onClick=${()=>G({by:t===`user`?``:t})}
>
By ${t}
</button>`)}
</div>
</div>
${t.error&&!t.data&&R`<${Y} title="The usage cannot be shown">${xn(t.error)}</${Y}>`}
<div class="stack">
<section class="panel scroll-x" aria-label="Used and stored">
<table class="table">
<thead>
<tr>
<th scope="col">${e===`user`?`User`:`Project`}</th>
<th scope="col" class="right">Jobs</th>
<th scope="col" class="right">Device time</th>
<th scope="col" class="bar-column"><span class="only-read">Share</span></th>
<th scope="col" class="right">Checkpoints</th>
<th scope="col" class="right">Logs</th>
<th scope="col" class="right">Metrics</th>
<th scope="col" class="right">On the disk</th>
<th scope="col" class="right">Limit</th>
</tr>
</thead>
<tbody>
${r.toSorted((e,t)=>(Jt(t.device_time)??0)-(Jt(e.device_time)??0)).map(t=>R`<tr key=${t.subject}>
<td>
${e===`user`?R`<${K}
href=${`/?user=${encodeURIComponent(t.subject.slice(5))}`}
>${t.subject.slice(5)}</${K}>`:t.subject.slice(8)||R`<span class="dim">none</span>`}
</td>
<td class="right">${B(t.jobs??0)}</td>
<td class="right">${qt(Jt(t.device_time)??0)}</td>
<td class="bar-column">
<span
class="usage-bar"
style=${{width:`${100*(Jt(t.device_time)??0)/i}%`}}
></span>
</td>
<td class="right">${rn(t.stored?.checkpoints??0)}</td>
<td class="right">${rn(t.stored?.logs??0)}</td>
<td class="right">${rn(t.stored?.metrics??0)}</td>
<td class="right">${rn(ir(t.stored))}</td>
<td class="right">
${Number(t.stored_bytes_max??0)>0?rn(t.stored_bytes_max):`–`}
</td>
</tr>`)}
</tbody>
</table>
</section>
${(n.data?.shares??[]).length>0&&R`<section class="panel scroll-x" tabindex="0" aria-label="Fair share">
<div class="panel-head">
<h2>Fair share</h2>
<span class="dim">what was used a week ago counts half</span>
</div>
<table class="table">
<thead>
<tr>
<th scope="col">User</th>
<th scope="col">Project</th>
<th scope="col" class="right">Counted device time</th>
<th scope="col" class="right">Weight</th>
<th scope="col" class="right">Devices now</th>
<th scope="col" class="right">Jobs that wait</th>
</tr>
</thead>
<tbody>
${n.data.shares.map(e=>R`<tr key=${`${e.user}/${e.project}`}>
<td>${e.user}</td>
<td>${e.project??``}</td>
<td class="right">${qt(Jt(e.device_time)??0)}</td>
<td class="right">${e.weight??1}</td>
<td class="right">${e.devices??0}</td>
<td class="right">${B(e.queued_jobs??0)}</td>
</tr>`)}
</tbody>
</table>
</section>`}
${a.length>0&&R`<section class="panel scroll-x" aria-label="Largest jobs">
<div class="panel-head"><h2>Largest jobs</h2></div>
<table class="table">
<thead>
<tr>
<th scope="col">Job</th>
<th scope="col">State</th>
<th scope="col">Owner</th>
<th scope="col" class="right">Checkpoints</th>
<th scope="col" class="right">Logs</th>
<th scope="col" class="right">Metrics</th>
<th scope="col" class="right">In all</th>
</tr>
</thead>
<tbody>
${a.map(e=>R`<tr key=${e.job}><td><${K}
href=${`/${e.job}`}>${V(e.job)} ${e.display_name}</${K}></td><td>
<${Jn} state=${e.state} /></td>
<td>${e.user}</td><td class="right">${rn(e.stored?.checkpoints??0)}</td><td
class="right">${rn(e.stored?.logs??0)}</td>
<td class="right">${rn(e.stored?.metrics??0)}</td><td class="right">${rn(ir(e.stored))}</td>
</tr>`)}
</tbody>
</table>
</section>`}
</div>
</main>`}function or(e){let t=e.resolved_spec??e.spec??{};return{name:e.name,id:Number(e.name.split(`/`)[1]),uid:e.uid,title:t.name??``,state:e.state,user:e.user??``,project:t.project??``,model:Un(t),dataset:t.data?.dataset??``,devices:t.devices?.count??0,priority:t.priority??0,attempt:e.attempt??0,preemptions:e.preemptions??0,step:Number(e.progress?.step??0),totalSteps:Number(e.progress?.total_steps??0),eta:Jt(e.progress?.eta),rate:e.progress?.samples_per_s,created:Yt(e.create_time),started:Yt(e.start_time),ended:Yt(e.end_time),deviceTime:Jt(e.device_time),reason:e.queue_reasons?.[0]??e.failure?.message??``,failure:e.failure,note:e.note??``,tags:[...t.tags??[],...e.added_tags??[]],sweep:e.provenance?.trial?Number(e.provenance.trial.split(`/`)[1]):void 0,verified:e.verified,metrics:e.final_metrics??{},etag:e.etag,spec:t}}var sr=new WeakMap;function cr(e){let t=sr.get(e.spec);return t||(t=Bn(In(e.spec)),sr.set(e.spec,t)),t}function lr(e,t){if(e.started!==void 0)return e.ended===void 0?Math.max(0,(t-e.started)/1e3):(e.ended-e.started)/1e3}function ur(e){let t={};for(let n of e){let e=n.indexOf(`=`);e>0&&(t[n.slice(0,e)]=dr(n.slice(e+1)))}return t}function dr(e){if(!/^".*"$/s.test(e))return e;try{return JSON.parse(e)}catch{return e}}var fr=(e,t)=>Object.entries(e).filter(([e,n])=>n!==Vn(t[e])),pr=/^(name|description|project|retain|program\.script)$/;function mr(e,t){return fr(e,t).map(([e,t])=>({path:e,value_json:pr.test(e)&&t!==``?JSON.stringify(t):Hn(t)}))}var hr=(e,t)=>fr(e,t).map(([e,t])=>`${e}=${t}`),gr=[/^(name|description|priority|time_limit|devices\.count)$/,/^train\.(epochs|steps|global_batch|seed)$/,/^optimizer\.\w+\.(lr|weight_decay)$/,/^program\.(params\..+|command|script)$/],_r=e=>gr.some(t=>t.test(e)),vr=350;function yr({id:e}){let t=`jobs/${e}`,{data:n,error:r}=q(`JobService/GetJob`,{name:t}),i=q(`CheckpointService/ListCheckpoints`,{parent:t});return n?R`<${br} job=${n} checkpoints=${i.data?.checkpoints??[]} />`:R`<main class="view" id="main">
${r?R`<${J} error=${r} />`:R`<div class="loading">Loading ${t}</div>`}
</main>`}function br({job:e,checkpoints:t}){let n=Oe(()=>or(e),[e]),r=Oe(()=>cr(n),[n]),[i,a]=P(()=>ur(dn.value.params.getAll(`set`))),[o,s]=P(dn.value.params.get(`from`)??``),[c,l]=P(``),[u,d]=P({isBusy:!0}),[f,p]=P(!1),[m,h]=P(null),g=De(wr()),_=mr(i,r),v={name:e.name,changes:_,from_checkpoint:o},y=JSON.stringify(v);I(()=>{let e=hr(i,r),t=new URL(fn({from:o}),location.origin);t.searchParams.delete(`set`);for(let n of e)t.searchParams.append(`set`,n);history.replaceState(null,``,t.pathname+t.search),g.current=wr();let n=new AbortController;d(e=>({...e,isBusy:!0}));let a=setTimeout(async()=>{try{let e=await bn(`JobService/CloneJob`,{...v,validate_only:!0},{signal:n.signal});d({answer:e,of:y})}catch(e){n.signal.aborted||d({error:e,of:y})}},vr);return()=>{n.abort(),clearTimeout(a)}},[y]);let b=(e,t)=>a(n=>({...n,[e]:t})),x=e=>a(({[e]:t,...n})=>n),S=new Map((u.error?.violations??[]).map(({field:e,description:t})=>[e.replace(/^spec\./,``),t])),C=u.answer&&u.of===y&&!u.isBusy,w=async e=>{if(e.preventDefault(),C){p(!0),h(null);try{let{job:e}=await bn(`JobService/CloneJob`,{...v,request_id:g.current});U(mn(e.name))}catch(e){h(e),p(!1)}}},T=[...new Set([...Object.keys(r),...Object.keys(i)])],E=e=>e.toLowerCase().includes(c.toLowerCase()),D=T.filter(e=>_r(e)||e in i),ee=T.filter(e=>!D.includes(e)&&E(e)),te=e=>R`<${xr}
key=${e}
path=${e}
value=${Vn(r[e])}
edit=${i[e]}
wrong=${S.get(e)}
onEdit=${t=>b(e,t)}
onReset=${()=>x(e)}
/>`;return R`<main class="view" id="main">
<p class="crumbs"><${K} href="/">Runs</${K}> / <${K}
href=${mn(e.name)}>${n.id} ${n.title}</${K}> / clone</p>
<div class="view-head"><h1>Clone ${n.title} with changes</h1></div>
${!jn()&&R`<p class="warn">Your role permits no submissions.</p>`}
<form class="grid-2 clone-grid" onSubmit=${w}>
<div class="stack">
<section class="panel" aria-label="Common fields"><div class="panel-head"><h2>Often changed</h2></div>
<div class="fields">${D.map(te)}
<div class="field-row"><label class="field-path" for="from">from checkpoint</label>
<select id="from" class="select field-input" value=${o}
onChange=${e=>s(e.target.value)}>
<option value="">as the job itself began</option>
${t.toReversed().map(({name:e,step:t,is_best:n})=>R`<option key=${e} value=${e}>step ${t}${n?`, the best`:``}</option>`)}
</select></div></div></section>
<section class="panel" aria-label="All other fields"><div class="panel-head"><h2>All others</h2>
<input class="input log-search" type="search" placeholder="Find a field" aria-label="Find a field"
value=${c}
onInput=${e=>l(e.target.value)} /></div>
<div class="fields">${ee.map(te)}<${Sr} known=${T} onAdd=${b} /></div></section>
</div>
<aside class="panel clone-side" aria-label="What would be submitted">
<div class="panel-head"><h2>What would be submitted</h2>${u.isBusy&&R`<span class="dim">checking</span>`}</div>
<div class="panel-body stack" aria-live="polite">
<${Cr} check=${u} />
<${J} error=${m} />
<button class="button button-primary clone-submit" disabled=${!C||f||!jn()}>
${f?`Submitting`:`Submit the clone`}</button>
</div></aside>
</form>
</main>`}function xr({path:e,value:t,edit:n,wrong:r,onEdit:i,onReset:a}){let o=n!==void 0&&n!==t,s=t.length>60||t.includes(`
`),c=`field-${e}`,l={id:c,class:z(`input field-input mono`,o&&`field-changed`,r&&`input-wrong`),value:n??t,"aria-invalid":!!r,"aria-describedby":r?`${c}-wrong`:void 0,spellcheck:!1,onInput:e=>i(e.target.value)};return R`<div class="field-row">
<label class="field-path mono" for=${c}>${e}</label>
${s?R`<textarea rows="4" ...${l}></textarea>`:R`<input ...${l} />`}
${o&&R`<button
type="button"
class="button button-quiet button-small"
onClick=${a}
title=${`Undo the change of ${e}`}
>
was ${t.length>18?`${t.slice(0,18)}…`:t||`unset`}
</button>`}
${r&&R`<p class="field-wrong" id=${`${c}-wrong`}>${r}</p>`}
</div>`}function Sr({known:e,onAdd:t}){let[n,r]=P(``),i=()=>{n.trim()&&!e.includes(n.trim())&&t(n.trim(),``),r(``)};return R`<div class="field-row">
<input
class="input field-path mono"
placeholder="another field: time_limit"
aria-label="Path of another field"
value=${n}
onInput=${e=>r(e.target.value)}
onKeyDown=${e=>{e.key===`Enter`&&(e.preventDefault(),i())}}
/>
<button type="button" class="button" onClick=${i}>Add the field</button>
</div>`}function Cr({check:e}){if(e.error){let t=e.error.violations??[];return t.length===0?R`<${J} error=${e.error} />`:R`<div class="error-box" role="alert">
<ul class="violations">
${t.map(({field:e,description:t})=>R`<li key=${e}><code>${e}</code> ${t}</li>`)}
</ul>
</div>`}if(!e.answer)return R`<p class="dim">…</p>`;let{job:t,differences:n=[]}=e.answer,r=t?.explanation??{},i=Yt(r.start_time);return R` ${n.length===0?R`<p class="dim">Nothing differs from the original.</p>`:R`<table class="table diff-list">
<thead>
<tr>
<th scope="col">Field</th>
<th scope="col">Was</th>
<th scope="col">Becomes</th>
</tr>
</thead>
<tbody>
${n.map(({path:e,left_json:t,right_json:n})=>R`<tr key=${e}>
<th scope="row" class="mono">
${e.split(`.`).map((e,t)=>R`${t>0&&R`.<wbr />`}${e}`)}
</th>
<td class="mono diff-was">${t||`–`}</td>
<td class="mono diff-is">${n||`–`}</td>
</tr>`)}
</tbody>
</table>`}
${(t?.warnings??[]).map(e=>R`<p class="warn" key=${e}>${e}</p>`)}
${r.infeasible?R`<p class="worse">No known workers can ever hold it.</p>`:i!==void 0&&i-jt.value<2e3&&!r.reasons?.length?R`<p>It would start at once: ${r.start_basis}.</p>`:R`<ul class="reasons">
${(r.reasons??[]).map(e=>R`<li key=${e}>${e}</li>`)}
</ul>
${i===void 0?R`<p class="dim">
No start can be foretold${r.start_basis?`: ${r.start_basis}`:``}.
</p>`:R`<p>It would start in ${qt((i-jt.value)/1e3)}: ${r.start_basis}.</p>`}`}`}var wr=()=>[...crypto.getRandomValues(new Uint8Array(16))].map(e=>e.toString(16).padStart(2,`0`)).join(``),Tr=class{x=L(null);isFrozen=L(!1);move(e){this.isFrozen.value||(this.x.value=e)}toggleFrozen(e){this.isFrozen.value?(this.isFrozen.value=!1,this.x.value=e):e!==null&&(this.x.value=e,this.isFrozen.value=!0)}};function Er(){let e=Math.min(.999,Math.max(0,Number(W(`smooth`))||0)),t=/^(-?[\d.]+)_(-?[\d.]+)$/.exec(W(`zoom`));return{weight:e,isLog:W(`log`)===`1`,axis:W(`x`)===`time`?`time`:`step`,zoom:t?[Number(t[1]),Number(t[2])]:null}}var Dr=e=>G({zoom:e?e.map(e=>Number(e.toPrecision(7))).join(`_`):``});function Or(){return P(()=>new Tr)[0]}function kr({settings:e,group:t,children:n}){Ut([{key:`l`,does:`logarithmic axis`,action:()=>G({log:e.isLog?``:`1`})},{key:`t`,does:`axis of steps or of time`,action:()=>G({x:e.axis===`time`?``:`time`,zoom:``})},{key:`0`,does:`whole axis`,action:()=>Dr(null)}]);let[r,i]=P(e.weight);return I(()=>i(e.weight),[e.weight]),qn(r,60,t=>{t!==e.weight&&G({smooth:t||``})}),R`<div class="toolbar chart-controls" role="group" aria-label="Charts">
<label class="control"
>Smoothing
<input
type="range"
min="0"
max="0.99"
step="0.01"
value=${r}
onInput=${e=>i(Number(e.target.value))}
/><output class="num control-value">${r.toFixed(2)}</output></label
>
<div class="chips" role="group" aria-label="Horizontal axis">
${[[`step`,`Step`],[`time`,`Time`]].map(([t,n])=>R` <button
type="button"
key=${t}
class=${z(`chip`,e.axis===t&&`chip-on`)}
aria-pressed=${e.axis===t}
onClick=${()=>G({x:t===`time`?`time`:``,zoom:``})}
>
${n}
</button>`)}
</div>
<label class="check"
><input
type="checkbox"
checked=${e.isLog}
onChange=${e=>G({log:e.target.checked?`1`:``})}
/>
Log axis</label
>
${e.zoom&&R`<button type="button" class="button button-small" onClick=${()=>Dr(null)}>Whole axis</button>`}
${t.isFrozen.value&&R`<button type="button" class="button button-small" onClick=${()=>t.toggleFrozen(null)}>
Release the cursor
</button>`}
${n}
</div>`}function Ar(e,t){if(!(t>0))return e.slice();let n=0,r=1;return e.map(e=>e===null||!Number.isFinite(e)?null:(n=n*t+e*(1-t),r*=t,n/(1-r)))}function jr(e,t,{buckets:n,weight:r=0,from:i,to:a}){let o=Ar(t,r),s=0,c=e.length;i!==void 0&&(s=Math.max(0,Mr(e,i)-1)),a!==void 0&&(c=Math.min(e.length,Mr(e,a)+1));let l={x:[],low:[],high:[],line:[]},u=c-s;if(u<=0)return l;if(u<=n){for(let n=s;n<c;++n){let r=Number.isFinite(t[n])?t[n]:null;l.x.push(e[n]),l.low.push(r),l.high.push(r),l.line.push(Number.isFinite(o[n])?o[n]:null)}return l}let d=e[c-1]-e[s]||1;for(let r=s;r<c;){let i=Math.min(n-1,Math.floor((e[r]-e[s])/d*n)),a=1/0,u=-1/0,f=null,p=e[r];for(;r<c&&Math.min(n-1,Math.floor((e[r]-e[s])/d*n))===i;++r)Number.isFinite(t[r])&&(a=Math.min(a,t[r]),u=Math.max(u,t[r]),f=o[r],p=e[r]);l.x.push(p),l.low.push(a===1/0?null:a),l.high.push(u===-1/0?null:u),l.line.push(f)}return l}function Mr(e,t){let n=0,r=e.length;for(;n<r;){let i=n+r>>1;e[i]<t?n=i+1:r=i}return n}function Nr(e,t){if(e.length===0)return-1;let n=Math.min(Mr(e,t),e.length-1);return n===0?0:t-e[n-1]<=e[n]-t?n-1:n}function Pr(e){let t=[...new Set(e.flatMap(({x:e})=>e))].sort((e,t)=>e-t),n=new Map(t.map((e,t)=>[e,t]));return[t,...e.map(({x:e,y:r})=>{let i=Array(t.length).fill(void 0);return e.forEach((e,t)=>{i[n.get(e)]=r[t]}),i})]}var Fr=matchMedia(`(prefers-color-scheme: dark)`),Ir=L(Fr.matches);Fr.addEventListener(`change`,()=>{Ir.value=Fr.matches});var Lr=e=>`--run-${e%10}`;function Rr(e){return getComputedStyle(document.documentElement).getPropertyValue(e).trim()}function zr(e,t){let n=Number.parseInt(e.slice(1),16);return`rgb(${n>>16&255} ${n>>8&255} ${n&255} / ${t})`}function Br(e,t){return[e,...t].map(e=>e.map(Vr).join(`,`)).join(`\r
`)+`\r
`}function Vr(e){if(e==null)return``;let t=typeof e==`object`?JSON.stringify(e):String(e);return typeof e==`string`&&/^[=+\-@\t\r]/.test(t)&&Number.isNaN(Number(t))&&(t=`'${t}`),/[",\r\n]/.test(t)?`"${t.replaceAll(`"`,`""`)}"`:t}function Hr(e,t,n){let r=n.flatMap(({label:e,xs:t,values:n})=>t.map((t,r)=>[e,t,n[r]]));er(`${e}.csv`,Br([`series`,t===`time`?`seconds`:`step`,`value`],r),`text/csv`)}function Ur(e,t,n){let r=n.map(({label:e,xs:n,values:r})=>({series:e,[t===`time`?`seconds`:`steps`]:n,values:r.map(e=>Number.isFinite(e)?e:String(e))}));er(`${e}.json`,JSON.stringify(r),`application/json`)}function Wr(e,t,n,r){let i=n.ctx.canvas,a=i.width/n.width,o=28*a,s=(8+18*Math.ceil(r.length/2))*a,c=document.createElement(`canvas`);c.width=i.width,c.height=i.height+o+s;let l=c.getContext(`2d`);l.fillStyle=Rr(`--surface`),l.fillRect(0,0,c.width,c.height),l.fillStyle=Rr(`--text`),l.font=`600 ${13*a}px system-ui, sans-serif`,l.fillText(t,12*a,19*a),l.drawImage(i,0,o),l.font=`${12*a}px system-ui, sans-serif`,r.forEach(({label:e,colour:t},r)=>{let s=(12+r%2*(n.width/2))*a,c=o+i.height+(14+18*Math.floor(r/2))*a;l.fillStyle=Rr(t),l.fillRect(s,c-6*a,12*a,3*a),l.fillStyle=Rr(`--text`),l.fillText(e,s+18*a,c,(n.width/2-40)*a)}),c.toBlob(t=>t&&er(`${e}.png`,t),`image/png`)}function Gr(e,t,n){let r=e.map(e=>({...e,...Kr(e,t)})),i=r.find(({isBase:e})=>e);if(i?.value!==void 0)for(let e of r)e!==i&&Number.isFinite(e.value)&&(e.delta=e.value-i.value);let a=e=>e===void 0?1/0:Number.isNaN(e)?1e300:n===`less`?e:-e;return r.sort((e,t)=>a(e.value)-a(t.value)||0)}function Kr({xs:e,values:t},n){if(e.length===0)return{};if(n===null)return{value:t[t.length-1],at:e[e.length-1]};let r=Nr(e,n),i=e.length>1?(e[e.length-1]-e[0])/(e.length-1):0;return n>e[e.length-1]+i||n<e[0]-i?{}:{value:t[r],at:e[r]}}var qr=12;function Jr({metric:e,series:t,group:n,better:r,axis:i}){let a=n.x.value,o=n.isFrozen.value,s=Gr(t,a,r),c=s.slice(0,qr),l=a===null?`last`:i===`time`?`at ${qt(a)}`:`at step ${B(Math.round(a))}`;return R`<div class=${z(`legend`,o&&`legend-frozen`)}>
<div class="legend-head">
<span class="num">${l}</span>
${o&&R`<span class="legend-pin"
>frozen
<button type="button" class="link" onClick=${()=>navigator.clipboard?.writeText(s.map(({label:e,at:t,value:n})=>`${e}\t${t??``}\t${n??``}`).join(`
`))}>copy</button>
<button type="button" class="link" onClick=${()=>n.toggleFrozen(null)}>release</button></span
>`}
</div>
<ul class="legend-rows">
${c.map(t=>R`<li key=${t.key} class="legend-row">
<span class="swatch" style=${{background:`var(${t.colour})`}} aria-hidden="true"></span>
${t.href?R`<${K} href=${t.href} class="legend-label" title=${t.label}>${t.label}</${K}>`:R`<span class="legend-label" title=${t.label}>${t.label}</span>`}
${t.isBase&&R`<span class="base-mark">baseline</span>`}
<span class="legend-value num">${t.value===void 0?`–`:$t(e,t.value)}</span>
${t.delta!==void 0&&R`<span
class=${z(`legend-delta num`,t.delta!==0&&r&&(t.delta>0==(r===`more`)?`better`:`worse`))}
>${t.delta>0?`+`:t.delta<0?`−`:`±`}${$t(e,Math.abs(t.delta))}</span
>`}
</li>`)}
</ul>
${s.length>qr&&R`<span class="dim">and ${s.length-qr} more</span>`}
</div>`}var Yr=!0,Xr=`uplot`,Zr=`u-hz`,Qr=`u-vt`,$r=`u-title`,ei=`u-wrap`,ti=`u-under`,ni=`u-over`,ri=`u-axis`,ii=`u-off`,ai=`u-select`,oi=`u-cursor-x`,si=`u-cursor-y`,ci=`u-cursor-pt`,li=`u-legend`,ui=`u-live`,di=`u-inline`,fi=`u-series`,pi=`u-marker`,mi=`u-label`,hi=`u-value`,gi=`width`,_i=`height`,vi=`top`,yi=`bottom`,bi=`left`,xi=`right`,Si=`#000`,Ci=`#0000`,wi=`mousemove`,Ti=`mousedown`,Ei=`mouseup`,Di=`mouseenter`,Oi=`mouseleave`,ki=`dblclick`,Ai=`resize`,ji=`scroll`,Mi=`change`,Ni=`dppxchange`,Pi=`--`,Fi=typeof window<`u`,Ii=Fi?document:null,Li=Fi?window:null,Ri=Fi?navigator:null,X,zi;function Bi(){let e=devicePixelRatio;X!=e&&(X=e,zi&&ta(Mi,zi,Bi),zi=matchMedia(`(min-resolution: ${X-.001}dppx) and (max-resolution: ${X+.001}dppx)`),ea(Mi,zi,Bi),Li.dispatchEvent(new CustomEvent(Ni)))}function Vi(e,t){if(t!=null){let n=e.classList;!n.contains(t)&&n.add(t)}}function Hi(e,t){let n=e.classList;n.contains(t)&&n.remove(t)}function Ui(e,t,n){e.style[t]=n+`px`}function Wi(e,t,n,r){let i=Ii.createElement(e);return t!=null&&Vi(i,t),n?.insertBefore(i,r),i}function Gi(e,t){return Wi(`div`,e,t)}var Ki=new WeakMap;function qi(e,t,n,r,i){let a=`translate(`+t+`px,`+n+`px)`;a!=Ki.get(e)&&(e.style.transform=a,Ki.set(e,a),t<0||n<0||t>r||n>i?Vi(e,ii):Hi(e,ii))}var Ji=new WeakMap;function Yi(e,t,n){let r=t+n;r!=Ji.get(e)&&(Ji.set(e,r),e.style.background=t,e.style.borderColor=n)}var Xi=new WeakMap;function Zi(e,t,n,r){let i=t+``+n;i!=Xi.get(e)&&(Xi.set(e,i),e.style.height=n+`px`,e.style.width=t+`px`,e.style.marginLeft=r?-t/2+`px`:0,e.style.marginTop=r?-n/2+`px`:0)}var Qi={passive:!0},$i={...Qi,capture:!0};function ea(e,t,n,r){t.addEventListener(e,n,r?$i:Qi)}function ta(e,t,n,r){t.removeEventListener(e,n,Qi)}Fi&&Bi();function na(e,t,n,r){let i;n||=0,r||=t.length-1;let a=r<=2147483647;for(;r-n>1;)i=a?n+r>>1:Ca((n+r)/2),t[i]<e?n=i:r=i;return e-t[n]<=t[r]-e?n:r}function ra(e){return(t,n,r)=>{let i=-1,a=-1;for(let a=n;a<=r;a++)if(e(t[a])){i=a;break}for(let i=r;i>=n;i--)if(e(t[i])){a=i;break}return[i,a]}}var ia=e=>e!=null,aa=e=>e!=null&&e>0,oa=ra(ia),sa=ra(aa);function ca(e,t,n,r=0,i=!1){let a=i?sa:oa,o=i?aa:ia;[t,n]=a(e,t,n);let s=e[t],c=e[t];if(t>-1){if(r==1)s=e[t],c=e[n];else if(r==-1)s=e[n],c=e[t];else for(let r=t;r<=n;r++){let t=e[r];o(t)&&(t<s?s=t:t>c&&(c=t))}}return[s??Pa,c??-Pa]}function la(e,t,n,r){let i=ka(e),a=ka(t);e==t&&(i==-1?(e*=n,t/=n):(e/=n,t*=n));let o=n==10?Aa:ja,s=i==1?Ca:Ta,c=a==1?Ta:Ca,l=s(o(Sa(e))),u=c(o(Sa(t))),d=Oa(n,l),f=Oa(n,u);return n==10&&(l<0&&(d=Ya(d,-l)),u<0&&(f=Ya(f,-u))),r||n==2?(e=d*i,t=f*a):(e=Ja(e,d),t=qa(t,f)),[e,t]}function ua(e,t,n,r){let i=la(e,t,n,r);return e==0&&(i[0]=0),t==0&&(i[1]=0),i}var da=.1,fa={mode:3,pad:da},pa={pad:0,soft:null,mode:0},ma={min:pa,max:pa};function ha(e,t,n,r){return oo(n)?_a(e,t,n):(pa.pad=n,pa.soft=r?0:null,pa.mode=r?3:0,_a(e,t,ma))}function Z(e,t){return e??t}function ga(e,t,n){for(t=Z(t,0),n=Z(n,e.length-1);t<=n;){if(e[t]!=null)return!0;t++}return!1}function _a(e,t,n){let r=n.min,i=n.max,a=Z(r.pad,0),o=Z(i.pad,0),s=Z(r.hard,-Pa),c=Z(i.hard,Pa),l=Z(r.soft,Pa),u=Z(i.soft,-Pa),d=Z(r.mode,0),f=Z(i.mode,0),p=t-e,m=Aa(p),h=Da(Sa(e),Sa(t)),g=Sa(Aa(h)-m);(p<1e-24||g>10)&&(p=0,(e==0||t==0)&&(p=1e-24,d==2&&l!=Pa&&(a=0),f==2&&u!=-Pa&&(o=0)));let _=p||h||1e3,v=Oa(10,Ca(Aa(_))),y=Ya(Ja(e-_*(p==0?e==0?.1:1:a),v/10),24),b=e>=l&&(d==1||d==3&&y<=l||d==2&&y>=l)?l:Pa,x=Da(s,y<b&&e>=b?b:Ea(b,y)),S=Ya(qa(t+_*(p==0?t==0?.1:1:o),v/10),24),C=t<=u&&(f==1||f==3&&S>=u||f==2&&S<=u)?u:-Pa,w=Ea(c,S>C&&t<=C?C:Da(C,S));return x==w&&x==0&&(w=100),[x,w]}var va=new Intl.NumberFormat(Fi?Ri.language:`en-US`),ya=e=>va.format(e),ba=Math,xa=ba.PI,Sa=ba.abs,Ca=ba.floor,wa=ba.round,Ta=ba.ceil,Ea=ba.min,Da=ba.max,Oa=ba.pow,ka=ba.sign,Aa=ba.log10,ja=ba.log2,Ma=(e,t=1)=>ba.sinh(e)*t,Na=(e,t=1)=>ba.asinh(e/t),Pa=1/0;function Fa(e){return(Aa((e^e>>31)-(e>>31))|0)+1}function Ia(e,t,n){return Ea(Da(e,t),n)}function La(e){return typeof e==`function`}function Q(e){return La(e)?e:()=>e}var Ra=()=>{},za=e=>e,Ba=(e,t)=>t,Va=e=>null,Ha=e=>!0,Ua=(e,t)=>e==t,Wa=/\.\d*?(?=9{6,}|0{6,})/gm,Ga=e=>{if(ro(e)||Xa.has(e))return e;let t=`${e}`,n=t.match(Wa);if(n==null)return e;let r=n[0].length-1;if(t.indexOf(`e-`)!=-1){let[e,n]=t.split(`e`);return+`${Ga(e)}e${n}`}return Ya(e,r)};function Ka(e,t){return Ga(Ya(Ga(e/t))*t)}function qa(e,t){return Ga(Ta(Ga(e/t))*t)}function Ja(e,t){return Ga(Ca(Ga(e/t))*t)}function Ya(e,t=0){if(ro(e))return e;let n=10**t;return wa(e*n*(1+2**-52))/n}var Xa=new Map;function Za(e){return((``+e).split(`.`)[1]||``).length}function Qa(e,t,n,r){let i=[],a=r.map(Za);for(let o=t;o<n;o++){let t=Sa(o),n=Ya(Oa(e,o),t);for(let s=0;s<r.length;s++){let c=e==10?+`${r[s]}e${o}`:r[s]*n,l=(o>=0?0:t)+(o>=a[s]?0:a[s]),u=e==10?c:Ya(c,l);i.push(u),Xa.set(u,l)}}return i}var $a={},eo=[],to=[null,null],no=Array.isArray,ro=Number.isInteger,io=e=>e===void 0;function ao(e){return typeof e==`string`}function oo(e){let t=!1;if(e!=null){let n=e.constructor;t=n==null||n==Object}return t}function so(e){return typeof e==`object`&&!!e}var co=Object.getPrototypeOf(Uint8Array),lo=`__proto__`;function uo(e,t=oo){let n;if(no(e)){let r=e.find(e=>e!=null);if(no(r)||t(r)){n=Array(e.length);for(let r=0;r<e.length;r++)n[r]=uo(e[r],t)}else n=e.slice()}else if(e instanceof co)n=e.slice();else if(t(e)){n={};for(let r in e)r!=lo&&(n[r]=uo(e[r],t))}else n=e;return n}function fo(e){let t=arguments;for(let n=1;n<t.length;n++){let r=t[n];for(let t in r)t!=lo&&(oo(e[t])?fo(e[t],uo(r[t])):e[t]=uo(r[t]))}return e}var po=0,mo=1,ho=2;function go(e,t,n){for(let r=0,i,a=-1;r<t.length;r++){let o=t[r];if(o>a){for(i=o-1;i>=0&&e[i]==null;)e[i--]=null;for(i=o+1;i<n&&e[i]==null;)e[a=i++]=null}}}function _o(e,t){if(bo(e)){let t=e[0].slice();for(let n=1;n<e.length;n++)t.push(...e[n].slice(1));return xo(t[0])||(t=yo(t)),t}let n=new Set;for(let t=0;t<e.length;t++){let r=e[t][0],i=r.length;for(let e=0;e<i;e++)n.add(r[e])}let r=[Array.from(n).sort((e,t)=>e-t)],i=r[0].length,a=new Map;for(let e=0;e<i;e++)a.set(r[0][e],e);for(let n=0;n<e.length;n++){let o=e[n],s=o[0];for(let e=1;e<o.length;e++){let c=o[e],l=Array(i).fill(void 0),u=t?t[n][e]:mo,d=[];for(let e=0;e<c.length;e++){let t=c[e],n=a.get(s[e]);t===null?u!=po&&(l[n]=t,u==ho&&d.push(n)):l[n]=t}go(l,d,i),r.push(l)}}return r}var vo=typeof queueMicrotask>`u`?e=>Promise.resolve().then(e):queueMicrotask;function yo(e){let t=e[0],n=t.length,r=Array(n);for(let e=0;e<r.length;e++)r[e]=e;r.sort((e,n)=>t[e]-t[n]);let i=[];for(let t=0;t<e.length;t++){let a=e[t],o=Array(n);for(let e=0;e<n;e++)o[e]=a[r[e]];i.push(o)}return i}function bo(e){let t=e[0][0],n=t.length;for(let r=1;r<e.length;r++){let i=e[r][0];if(i.length!=n)return!1;if(i!=t){for(let e=0;e<n;e++)if(i[e]!=t[e])return!1}}return!0}function xo(e,t=100){let n=e.length;if(n<=1)return!0;let r=0,i=n-1;for(;r<=i&&e[r]==null;)r++;for(;i>=r&&e[i]==null;)i--;if(i<=r)return!0;let a=Da(1,Ca((i-r+1)/t));for(let t=e[r],n=r+a;n<=i;n+=a){let r=e[n];if(r!=null){if(r<=t)return!1;t=r}}return!0}var So=[`January`,`February`,`March`,`April`,`May`,`June`,`July`,`August`,`September`,`October`,`November`,`December`],Co=[`Sunday`,`Monday`,`Tuesday`,`Wednesday`,`Thursday`,`Friday`,`Saturday`];function wo(e){return e.slice(0,3)}var To=Co.map(wo),Eo={MMMM:So,MMM:So.map(wo),WWWW:Co,WWW:To};function Do(e){return(e<10?`0`:``)+e}function Oo(e){return(e<10?`00`:e<100?`0`:``)+e}var ko={YYYY:e=>e.getFullYear(),YY:e=>(e.getFullYear()+``).slice(2),MMMM:(e,t)=>t.MMMM[e.getMonth()],MMM:(e,t)=>t.MMM[e.getMonth()],MM:e=>Do(e.getMonth()+1),M:e=>e.getMonth()+1,DD:e=>Do(e.getDate()),D:e=>e.getDate(),WWWW:(e,t)=>t.WWWW[e.getDay()],WWW:(e,t)=>t.WWW[e.getDay()],HH:e=>Do(e.getHours()),H:e=>e.getHours(),h:e=>{let t=e.getHours();return t==0?12:t>12?t-12:t},AA:e=>e.getHours()>=12?`PM`:`AM`,aa:e=>e.getHours()>=12?`pm`:`am`,a:e=>e.getHours()>=12?`p`:`a`,mm:e=>Do(e.getMinutes()),m:e=>e.getMinutes(),ss:e=>Do(e.getSeconds()),s:e=>e.getSeconds(),fff:e=>Oo(e.getMilliseconds())};function Ao(e,t){t||=Eo;let n=[],r=/\{([a-z]+)\}|[^{]+/gi,i;for(;i=r.exec(e);)n.push(i[0][0]==`{`?ko[i[1]]:i[0]);return e=>{let r=``;for(let i=0;i<n.length;i++)r+=typeof n[i]==`string`?n[i]:n[i](e,t);return r}}var jo=new Intl.DateTimeFormat().resolvedOptions().timeZone;function Mo(e,t){let n;return t==`UTC`||t==`Etc/UTC`?n=new Date(+e+e.getTimezoneOffset()*6e4):t==jo?n=e:(n=new Date(e.toLocaleString(`en-US`,{timeZone:t})),n.setMilliseconds(e.getMilliseconds())),n}var No=e=>e%1==0,Po=[1,2,2.5,5],Fo=Qa(10,-32,0,Po),Io=Qa(10,0,32,Po),Lo=Io.filter(No),Ro=Fo.concat(Io),zo=`
`,Bo=`{YYYY}`,Vo=zo+Bo,Ho=`{M}/{D}`,Uo=zo+Ho,Wo=Uo+`/{YY}`,Go=`{aa}`,Ko=`{h}:{mm}`+Go,qo=zo+Ko,Jo=`:{ss}`,$=null;function Yo(e){let t=e*1e3,n=t*60,r=n*60,i=r*24,a=i*30,o=i*365,s=(e==1?Qa(10,0,3,Po).filter(No):Qa(10,-3,0,Po)).concat([t,t*5,t*10,t*15,t*30,n,n*5,n*10,n*15,n*30,r,r*2,r*3,r*4,r*6,r*8,r*12,i,i*2,i*3,i*4,i*5,i*6,i*7,i*8,i*9,i*10,i*15,a,a*2,a*3,a*4,a*6,o,o*2,o*5,o*10,o*25,o*50,o*100]),c=[[o,Bo,$,$,$,$,$,$,1],[i*28,`{MMM}`,Vo,$,$,$,$,$,1],[i,Ho,Vo,$,$,$,$,$,1],[r,`{h}`+Go,Wo,$,Uo,$,$,$,1],[n,Ko,Wo,$,Uo,$,$,$,1],[t,Jo,Wo+` `+Ko,$,Uo+` `+Ko,$,qo,$,1],[e,Jo+`.{fff}`,Wo+` `+Ko,$,Uo+` `+Ko,$,qo,$,1]];function l(t){return(s,c,l,u,d,f)=>{let p=[],m=d>=o,h=d>=a&&d<o,g=t(l),_=Ya(g*e,3),v=as(g.getFullYear(),m?0:g.getMonth(),h||m?1:g.getDate()),y=Ya(v*e,3);if(h||m){let n=h?d/a:0,r=m?d/o:0,i=_==y?_:Ya(as(v.getFullYear()+r,v.getMonth()+n,1)*e,3),s=new Date(wa(i/e)),c=s.getFullYear(),l=s.getMonth();for(let a=0;i<=u;a++){let o=as(c+r*a,l+n*a,1),s=o-t(Ya(o*e,3));i=Ya((+o+s)*e,3),i<=u&&p.push(i)}}else{let a=d>=i?i:d,o=y+(Ca(l)-Ca(_))+qa(_-y,a);p.push(o);let m=t(o),h=m.getHours()+m.getMinutes()/n+m.getSeconds()/r,g=d/r,v=f/s.axes[c]._space;for(;o=Ya(o+d,e==1?0:3),!(o>u);)if(g>1){let e=Ca(Ya(h+g,6))%24,n=t(o).getHours()-e;n>1&&(n=-1),o-=n*r,h=(h+g)%24;let i=p[p.length-1];Ya((o-i)/d,3)*v>=.7&&p.push(o)}else p.push(o)}return p}}return[s,c,l]}var[Xo,Zo,Qo]=Yo(1),[$o,es,ts]=Yo(.001);Qa(2,-53,53,[1]);function ns(e,t){return e.map(e=>e.map((n,r)=>r==0||r==8||n==null?n:t(r==1||e[8]==0?n:e[1]+n)))}function rs(e,t){return(n,r,i,a,o)=>{let s=t.find(e=>o>=e[0])||t[t.length-1],c,l,u,d,f,p;return r.map(t=>{let n=e(t),r=n.getFullYear(),i=n.getMonth(),a=n.getDate(),o=n.getHours(),m=n.getMinutes(),h=n.getSeconds(),g=r!=c&&s[2]||i!=l&&s[3]||a!=u&&s[4]||o!=d&&s[5]||m!=f&&s[6]||h!=p&&s[7]||s[1];return c=r,l=i,u=a,d=o,f=m,p=h,g(n)})}}function is(e,t){let n=Ao(t);return(t,r,i,a,o)=>r.map(t=>n(e(t)))}function as(e,t,n){return new Date(e,t,n)}function os(e,t){return t(e)}var ss=`{YYYY}-{MM}-{DD} {h}:{mm}{aa}`;function cs(e,t){return(n,r,i,a)=>a==null?Pi:t(e(r))}function ls(e,t){let n=e.series[t];return n.width?n.stroke(e,t):n.points.width?n.points.stroke(e,t):null}function us(e,t){return e.series[t].fill(e,t)}var ds={show:!0,live:!0,isolate:!1,mount:Ra,markers:{show:!0,width:2,stroke:ls,fill:us,dash:`solid`},idx:null,idxs:null,values:[]};function fs(e,t){let n=e.cursor.points,r=Gi(),i=n.size(e,t);Ui(r,gi,i),Ui(r,_i,i);let a=i/-2;Ui(r,`marginLeft`,a),Ui(r,`marginTop`,a);let o=n.width(e,t,i);return o&&Ui(r,`borderWidth`,o),r}function ps(e,t){let n=e.series[t].points;return n._fill||n._stroke}function ms(e,t){let n=e.series[t].points;return n._stroke||n._fill}function hs(e,t){return e.series[t].points.size}var gs=[0,0];function _s(e,t,n){return gs[0]=t,gs[1]=n,gs}function vs(e,t,n,r=!0){return e=>{e.button!=0||r&&e.target!=t||n(e)}}function ys(e,t,n,r=!0){return e=>{r&&e.target!=t||n(e)}}var bs={show:!0,x:!0,y:!0,lock:!1,move:_s,points:{one:!1,show:fs,size:hs,width:0,stroke:ms,fill:ps},bind:{mousedown:vs,mouseup:vs,click:vs,dblclick:vs,mousemove:ys,mouseleave:ys,mouseenter:ys},drag:{setScale:!0,x:!0,y:!1,dist:0,uni:null,click:(e,t)=>{t.stopPropagation(),t.stopImmediatePropagation()},_x:!1,_y:!1},focus:{dist:(e,t,n,r,i)=>r-i,prox:-1,bias:0},hover:{skip:[void 0],prox:null,bias:0},left:-10,top:-10,idx:null,dataIdx:null,idxs:null,event:null},xs={show:!0,stroke:`rgba(0,0,0,0.07)`,width:2},Ss=fo({},xs,{filter:Ba}),Cs=fo({},Ss,{size:10}),ws=fo({},xs,{show:!1}),Ts=`12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif, "Apple Color Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Noto Color Emoji"`,Es=`bold `+Ts,Ds=1.5,Os={show:!0,scale:`x`,stroke:Si,space:50,gap:5,alignTo:1,size:50,labelGap:0,labelSize:30,labelFont:Es,side:2,grid:Ss,ticks:Cs,border:ws,font:Ts,lineGap:Ds,rotate:0},ks=`Value`,As=`Time`,js={show:!0,scale:`x`,auto:!1,sorted:1,min:Pa,max:-1/0,idxs:[]};function Ms(e,t,n,r,i){return t.map(e=>e==null?``:ya(e))}function Ns(e,t,n,r,i,a,o){let s=[],c=Xa.get(i)||0;n=o?n:Ya(qa(n,i),c);for(let e=n;e<=r;e=Ya(e+i,c))s.push(Object.is(e,-0)?0:e);return s}function Ps(e,t,n,r,i,a,o){let s=[],c=e.scales[e.axes[t].scale].log;i=Oa(c,Ca((c==10?Aa:ja)(n))),c==10&&(i=Ro[na(i,Ro)]);let l=n,u=i*c;c==10&&(u=Ro[na(u,Ro)]);do s.push(l),l+=i,c==10&&!Xa.has(l)&&(l=Ya(l,Xa.get(i))),l>=u&&(i=l,u=i*c,c==10&&(u=Ro[na(u,Ro)]));while(l<=r);return s}function Fs(e,t,n,r,i,a,o){let s=e.scales[e.axes[t].scale].asinh,c=r>s?Ps(e,t,Da(s,n),r,i):[s],l=r>=0&&n<=0?[0]:[];return(n<-s?Ps(e,t,Da(s,-r),-n,i):[s]).reverse().map(e=>-e).concat(l,c)}var Is=/./,Ls=/[12357]/,Rs=/[125]/,zs=/1/,Bs=(e,t,n,r)=>e.map((e,i)=>t==4&&e==0||i%r==0&&n.test(e.toExponential()[+(e<0)])?e:null);function Vs(e,t,n,r,i){let a=e.axes[n],o=a.scale,s=e.scales[o],c=e.valToPos,l=a._space,u=c(10,o),d=c(9,o)-u>=l?Is:c(7,o)-u>=l?Ls:c(5,o)-u>=l?Rs:zs;if(d==zs){let e=Sa(c(1,o)-u);if(e<l)return Bs(t.slice().reverse(),s.distr,d,Ta(l/e)).reverse()}return Bs(t,s.distr,d,1)}function Hs(e,t,n,r,i){let a=e.axes[n],o=a.scale,s=a._space,c=e.valToPos,l=Sa(c(1,o)-c(2,o));return l<s?Bs(t.slice().reverse(),3,Is,Ta(s/l)).reverse():t}function Us(e,t,n,r){return r==null?Pi:t==null?``:ya(t)}var Ws={show:!0,scale:`y`,stroke:Si,space:30,gap:5,alignTo:1,size:50,labelGap:0,labelSize:30,labelFont:Es,side:3,grid:Ss,ticks:Cs,border:ws,font:Ts,lineGap:Ds,rotate:0};function Gs(e,t){return Ya((3+(e||1)*2)*t,3)}function Ks(e,t){let{scale:n,idxs:r}=e.series[0],i=e._data[0],a=e.valToPos(i[r[0]],n,!0),o=Sa(e.valToPos(i[r[1]],n,!0)-a)/(e.series[t].points.space*X);return r[1]-r[0]<=o}var qs={scale:null,auto:!0,sorted:0,min:Pa,max:-1/0},Js=(e,t,n,r,i)=>i,Ys={show:!0,auto:!0,sorted:0,gaps:Js,alpha:1,facets:[fo({},qs,{scale:`x`}),fo({},qs,{scale:`y`})]},Xs={scale:`y`,auto:!0,sorted:0,show:!0,spanGaps:!1,gaps:Js,alpha:1,points:{show:Ks,filter:null},values:null,min:Pa,max:-1/0,idxs:[],path:null,clip:null};function Zs(e,t,n,r,i){return n/10}var Qs={time:Yr,auto:!0,distr:1,log:10,asinh:1,min:null,max:null,dir:1,ori:0},$s=fo({},Qs,{time:!1,ori:1}),ec={};function tc(e,t){let n=ec[e];return n||(n={key:e,plots:[],sub(e){n.plots.push(e)},unsub(e){n.plots=n.plots.filter(t=>t!=e)},pub(e,t,r,i,a,o,s){for(let c=0;c<n.plots.length;c++)n.plots[c]!=t&&n.plots[c].pub(e,t,r,i,a,o,s)}},e!=null&&(ec[e]=n)),n}var nc=1,rc=2;function ic(e,t,n){let r=e.mode,i=e.series[t],a=r==2?e._data[t]:e._data,o=e.scales,s=e.bbox,c=a[0],l=r==2?a[1]:a[t],u=r==2?o[i.facets[0].scale]:o[e.series[0].scale],d=r==2?o[i.facets[1].scale]:o[i.scale],f=s.left,p=s.top,m=s.width,h=s.height,g=e.valToPosH,_=e.valToPosV;return u.ori==0?n(i,c,l,u,d,g,_,f,p,m,h,pc,hc,_c,yc,xc):n(i,c,l,u,d,_,g,p,f,h,m,mc,gc,vc,bc,Sc)}function ac(e,t){let n=0,r=0,i=Z(e.bands,eo);for(let e=0;e<i.length;e++){let a=i[e];a.series[0]==t?n=a.dir:a.series[1]==t&&(a.dir==1?r|=1:r|=2)}return[n,r==1?-1:r==2?1:r==3?2:0]}function oc(e,t,n,r,i){let a=e.mode,o=e.series[t],s=a==2?o.facets[1].scale:o.scale,c=e.scales[s];return i==-1?c.min:i==1?c.max:c.distr==3?c.dir==1?c.min:c.max:0}function sc(e,t,n,r,i,a){return ic(e,t,(e,t,o,s,c,l,u,d,f,p,m)=>{let h=e.pxRound,g=s.dir*(s.ori==0?1:-1),_=s.ori==0?hc:gc,v,y;g==1?(v=n,y=r):(v=r,y=n);let b=h(l(t[v],s,p,d)),x=h(u(o[v],c,m,f)),S=h(l(t[y],s,p,d)),C=h(u(a==1?c.max:c.min,c,m,f)),w=new Path2D(i);return _(w,S,C),_(w,b,C),_(w,b,x),w})}function cc(e,t,n,r,i,a){let o=null;if(e.length>0){o=new Path2D;let s=t==0?_c:vc,c=n;for(let t=0;t<e.length;t++){let n=e[t];if(n[1]>n[0]){let e=n[0]-c;e>0&&s(o,c,r,e,r+a),c=n[1]}}let l=n+i-c;l>0&&s(o,c,r-5,l,r+a+10)}return o}function lc(e,t,n){let r=e[e.length-1];r&&r[0]==t?r[1]=n:e.push([t,n])}function uc(e,t,n,r,i,a,o){let s=[],c=e.length;for(let l=i==1?n:r;l>=n&&l<=r;l+=i)if(t[l]===null){let u=l,d=l;if(i==1)for(;++l<=r&&t[l]===null;)d=l;else for(;--l>=n&&t[l]===null;)d=l;let f=a(e[u]),p=d==u?f:a(e[d]),m=u-i;f=o<=0&&m>=0&&m<c?a(e[m]):f;let h=d+i;p=o>=0&&h>=0&&h<c?a(e[h]):p,p>=f&&s.push([f,p])}return s}function dc(e){return e==0?za:e==1?wa:t=>Ka(t,e)}function fc(e){let t=e==0?pc:mc,n=e==0?(e,t,n,r,i,a)=>{e.arcTo(t,n,r,i,a)}:(e,t,n,r,i,a)=>{e.arcTo(n,t,i,r,a)},r=e==0?(e,t,n,r,i)=>{e.rect(t,n,r,i)}:(e,t,n,r,i)=>{e.rect(n,t,i,r)};return(e,i,a,o,s,c=0,l=0)=>{c==0&&l==0?r(e,i,a,o,s):(c=Ea(c,o/2,s/2),l=Ea(l,o/2,s/2),t(e,i+c,a),n(e,i+o,a,i+o,a+s,c),n(e,i+o,a+s,i,a+s,l),n(e,i,a+s,i,a,l),n(e,i,a,i+o,a,c),e.closePath())}}var pc=(e,t,n)=>{e.moveTo(t,n)},mc=(e,t,n)=>{e.moveTo(n,t)},hc=(e,t,n)=>{e.lineTo(t,n)},gc=(e,t,n)=>{e.lineTo(n,t)},_c=fc(0),vc=fc(1),yc=(e,t,n,r,i,a)=>{e.arc(t,n,r,i,a)},bc=(e,t,n,r,i,a)=>{e.arc(n,t,r,i,a)},xc=(e,t,n,r,i,a,o)=>{e.bezierCurveTo(t,n,r,i,a,o)},Sc=(e,t,n,r,i,a,o)=>{e.bezierCurveTo(n,t,i,r,o,a)};function Cc(e){return(e,t,n,r,i)=>ic(e,t,(t,a,o,s,c,l,u,d,f,p,m)=>{let{pxRound:h,points:g}=t,_,v;s.ori==0?(_=pc,v=yc):(_=mc,v=bc);let y=Ya(g.width*X,3),b=(g.size-g.width)/2*X,x=Ya(b*2,3),S=new Path2D,C=new Path2D,{left:w,top:T,width:E,height:D}=e.bbox;_c(C,w-x,T-x,E+x*2,D+x*2);let ee=e=>{if(o[e]!=null){let t=h(l(a[e],s,p,d)),n=h(u(o[e],c,m,f));_(S,t+b,n),v(S,t,n,b,0,xa*2)}};if(i)i.forEach(ee);else for(let e=n;e<=r;e++)ee(e);return{stroke:y>0?S:null,fill:S,clip:C,flags:3}})}function wc(e){return(t,n,r,i,a,o)=>{r!=i&&(a!=r&&o!=r&&e(t,n,r),a!=i&&o!=i&&e(t,n,i),e(t,n,o))}}var Tc=wc(hc),Ec=wc(gc);function Dc(e){let t=Z(e?.alignGaps,0);return(e,n,r,i)=>ic(e,n,(a,o,s,c,l,u,d,f,p,m,h)=>{[r,i]=oa(s,r,i);let g=a.pxRound,_=e=>g(u(e,c,m,f)),v=e=>g(d(e,l,h,p)),y,b;c.ori==0?(y=hc,b=Tc):(y=gc,b=Ec);let x=c.dir*(c.ori==0?1:-1),S={stroke:new Path2D,fill:null,clip:null,band:null,gaps:null,flags:nc},C=S.stroke,w=!1;if(i-r>=m*4){let t=t=>e.posToVal(t,c.key,!0),n=null,a=null,l,u,d,f=_(o[x==1?r:i]),p=_(o[r]),m=_(o[i]),h=t(x==1?p+1:m-1);for(let e=x==1?r:i;e>=r&&e<=i;e+=x){let r=o[e],i=(x==1?r<h:r>h)?f:_(r),c=s[e];i==f?c==null?c===null&&(w=!0):(u=c,n==null?(y(C,i,v(u)),l=n=a=u):u<n?n=u:u>a&&(a=u)):(n!=null&&b(C,f,v(n),v(a),v(l),v(u)),c==null?(n=a=null,c===null&&(w=!0)):(u=c,y(C,i,v(u)),n=a=l=u),f=i,h=t(f+x))}n!=null&&n!=a&&d!=f&&b(C,f,v(n),v(a),v(l),v(u))}else for(let e=x==1?r:i;e>=r&&e<=i;e+=x){let t=s[e];t===null?w=!0:t!=null&&y(C,_(o[e]),v(t))}let[T,E]=ac(e,n);if(a.fill!=null||T!=0){let t=S.fill=new Path2D(C),s=v(a.fillTo(e,n,a.min,a.max,T)),c=_(o[r]),l=_(o[i]);x==-1&&([l,c]=[c,l]),y(t,l,s),y(t,c,s)}if(!a.spanGaps){let l=[];w&&l.push(...uc(o,s,r,i,x,_,t)),S.gaps=l=a.gaps(e,n,r,i,l),S.clip=cc(l,c.ori,f,p,m,h)}return E!=0&&(S.band=E==2?[sc(e,n,r,i,C,-1),sc(e,n,r,i,C,1)]:sc(e,n,r,i,C,E)),S})}function Oc(e){let t=Z(e.align,1),n=Z(e.ascDesc,!1),r=Z(e.alignGaps,0),i=Z(e.extend,!1);return(e,a,o,s)=>ic(e,a,(c,l,u,d,f,p,m,h,g,_,v)=>{[o,s]=oa(u,o,s);let y=c.pxRound,{left:b,width:x}=e.bbox,S=e=>y(p(e,d,_,h)),C=e=>y(m(e,f,v,g)),w=d.ori==0?hc:gc,T={stroke:new Path2D,fill:null,clip:null,band:null,gaps:null,flags:nc},E=T.stroke,D=d.dir*(d.ori==0?1:-1),ee=C(u[D==1?o:s]),te=S(l[D==1?o:s]),ne=te,O=te;i&&t==-1&&(O=b,w(E,O,ee)),w(E,te,ee);for(let e=D==1?o:s;e>=o&&e<=s;e+=D){let n=u[e];if(n==null)continue;let r=S(l[e]),i=C(n);t==1?w(E,r,ee):w(E,ne,i),w(E,r,i),ee=i,ne=r}let re=ne;i&&t==1&&(re=b+x,w(E,re,ee));let[ie,ae]=ac(e,a);if(c.fill!=null||ie!=0){let t=T.fill=new Path2D(E),n=C(c.fillTo(e,a,c.min,c.max,ie));w(t,re,n),w(t,O,n)}if(!c.spanGaps){let i=[];i.push(...uc(l,u,o,s,D,S,r));let f=c.width*X/2,p=n||t==1?f:-f,m=n||t==-1?-f:f;i.forEach(e=>{e[0]+=p,e[1]+=m}),T.gaps=i=c.gaps(e,a,o,s,i),T.clip=cc(i,d.ori,h,g,_,v)}return ae!=0&&(T.band=ae==2?[sc(e,a,o,s,E,-1),sc(e,a,o,s,E,1)]:sc(e,a,o,s,E,ae)),T})}function kc(e,t,n,r,i,a,o=Pa){if(e.length>1){let s=null;for(let c=0,l=1/0;c<e.length;c++)if(t[c]!==void 0){if(s!=null){let t=Sa(e[c]-e[s]);t<l&&(l=t,o=Sa(n(e[c],r,i,a)-n(e[s],r,i,a)))}s=c}}return o}function Ac(e){e||=$a;let t=Z(e.size,[.6,Pa,1]),n=e.align||0,r=e.gap||0,i=e.radius;i=i==null?[0,0]:typeof i==`number`?[i,0]:i;let a=Q(i),o=1-t[0],s=Z(t[1],Pa),c=Z(t[2],1),l=Z(e.disp,$a),u=Z(e.each,e=>{}),{fill:d,stroke:f}=l;return(e,t,i,p)=>ic(e,t,(m,h,g,_,v,y,b,x,S,C,w)=>{let T=m.pxRound,E=n,D=r*X,ee=s*X,te=c*X,ne,O;_.ori==0?[ne,O]=a(e,t):[O,ne]=a(e,t);let re=_.dir*(_.ori==0?1:-1),ie=_.ori==0?_c:vc,ae=_.ori==0?u:(e,t,n,r,i,a,o)=>{u(e,t,n,i,r,o,a)},oe=Z(e.bands,eo).find(e=>e.series[0]==t),se=oe==null?0:oe.dir,ce=m.fillTo(e,t,m.min,m.max,se),k=T(b(ce,v,w,S)),A,j,le,ue=C,M=T(m.width*X),de=!1,N=null,fe=null,pe=null,me=null;d!=null&&(M==0||f!=null)&&(de=!0,N=d.values(e,t,i,p),fe=new Map,new Set(N).forEach(e=>{e!=null&&fe.set(e,new Path2D)}),M>0&&(pe=f.values(e,t,i,p),me=new Map,new Set(pe).forEach(e=>{e!=null&&me.set(e,new Path2D)})));let{x0:he,size:ge}=l;if(he!=null&&ge!=null){E=1,h=he.values(e,t,i,p),he.unit==2&&(h=h.map(t=>e.posToVal(x+t*C,_.key,!0)));let n=ge.values(e,t,i,p);j=ge.unit==2?n[0]*C:y(n[0],_,C,x)-y(0,_,C,x),ue=kc(h,g,y,_,C,x,ue),le=ue-j+D}else ue=kc(h,g,y,_,C,x,ue),le=ue*o+D,j=ue-le;le<1&&(le=0),M>=j/2&&(M=0),le<5&&(T=za);let _e=le>0,ve=ue-le-(_e?M:0);j=T(Ia(ve,te,ee)),A=(E==0?j/2:E==re?0:j)-E*re*((E==0?D/2:0)+(_e?M/2:0));let ye={stroke:null,fill:null,clip:null,band:null,gaps:null,flags:0},be=de?null:new Path2D,xe=null;if(oe!=null)xe=e.data[oe.series[1]];else{let{y0:n,y1:r}=l;n!=null&&r!=null&&(g=r.values(e,t,i,p),xe=n.values(e,t,i,p))}let Se=ne*j,Ce=O*j;for(let n=re==1?i:p;n>=i&&n<=p;n+=re){let r=g[n];if(r==null)continue;if(xe!=null){let e=xe[n]??0;if(r-e==0)continue;k=b(e,v,w,S)}let i=y(_.distr!=2||l!=null?h[n]:n,_,C,x),a=b(Z(r,ce),v,w,S),o=T(i-A),s=T(Da(a,k)),c=T(Ea(a,k)),u=s-c;if(r!=null){let i=r<0?Ce:Se,a=r<0?Se:Ce;de?(M>0&&pe[n]!=null&&ie(me.get(pe[n]),o,c+Ca(M/2),j,Da(0,u-M),i,a),N[n]!=null&&ie(fe.get(N[n]),o,c+Ca(M/2),j,Da(0,u-M),i,a)):ie(be,o,c+Ca(M/2),j,Da(0,u-M),i,a),ae(e,t,n,o-M/2,c,j+M,u)}}return M>0?ye.stroke=de?me:be:de||(ye._fill=m.width==0?m._fill:m._stroke??m._fill,ye.width=0),ye.fill=de?fe:be,ye})}function jc(e,t){let n=Z(t?.alignGaps,0);return(t,r,i,a)=>ic(t,r,(o,s,c,l,u,d,f,p,m,h,g)=>{[i,a]=oa(c,i,a);let _=o.pxRound,v=e=>_(d(e,l,h,p)),y=e=>_(f(e,u,g,m)),b,x,S;l.ori==0?(b=pc,S=hc,x=xc):(b=mc,S=gc,x=Sc);let C=l.dir*(l.ori==0?1:-1),w=v(s[C==1?i:a]),T=w,E=[],D=[];for(let e=C==1?i:a;e>=i&&e<=a;e+=C)if(c[e]!=null){let t=s[e],n=v(t);E.push(T=n),D.push(y(c[e]))}let ee={stroke:e(E,D,b,S,x,_),fill:null,clip:null,band:null,gaps:null,flags:nc},te=ee.stroke,[ne,O]=ac(t,r);if(o.fill!=null||ne!=0){let e=ee.fill=new Path2D(te),n=y(o.fillTo(t,r,o.min,o.max,ne));S(e,T,n),S(e,w,n)}if(!o.spanGaps){let e=[];e.push(...uc(s,c,i,a,C,v,n)),ee.gaps=e=o.gaps(t,r,i,a,e),ee.clip=cc(e,l.ori,p,m,h,g)}return O!=0&&(ee.band=O==2?[sc(t,r,i,a,te,-1),sc(t,r,i,a,te,1)]:sc(t,r,i,a,te,O)),ee})}function Mc(e){return jc(Nc,e)}function Nc(e,t,n,r,i,a){let o=e.length;if(o<2)return null;let s=new Path2D;if(n(s,e[0],t[0]),o==2)r(s,e[1],t[1]);else{let n=Array(o),r=Array(o-1),a=Array(o-1),c=Array(o-1);for(let n=0;n<o-1;n++)a[n]=t[n+1]-t[n],c[n]=e[n+1]-e[n],r[n]=a[n]/c[n];n[0]=r[0];for(let e=1;e<o-1;e++)r[e]===0||r[e-1]===0||r[e-1]>0!=r[e]>0?n[e]=0:(n[e]=3*(c[e-1]+c[e])/((2*c[e]+c[e-1])/r[e-1]+(c[e]+2*c[e-1])/r[e]),isFinite(n[e])||(n[e]=0));n[o-1]=r[o-2];for(let r=0;r<o-1;r++)i(s,e[r]+c[r]/3,t[r]+n[r]*c[r]/3,e[r+1]-c[r]/3,t[r+1]-n[r+1]*c[r]/3,e[r+1],t[r+1])}return s}var Pc=new Set;function Fc(){for(let e of Pc)e.syncRect(!0)}Fi&&(ea(Ai,Li,Fc),ea(ji,Li,Fc,!0),ea(Ni,Li,()=>{Zc.pxRatio=X}));var Ic=Dc(),Lc=Cc();function Rc(e,t,n,r){return(r?[e[0],e[1]].concat(e.slice(2)):[e[0]].concat(e.slice(1))).map((e,r)=>Bc(e,r,t,n))}function zc(e,t){return e.map((e,n)=>n==0?{}:fo({},t,e))}function Bc(e,t,n,r){return fo({},t==0?n:r,e)}function Vc(e,t,n){return t==null?to:[t,n]}var Hc=Vc;function Uc(e,t,n){return t==null?to:ha(t,n,da,!0)}function Wc(e,t,n,r){return t==null?to:la(t,n,e.scales[r].log,!1)}var Gc=Wc;function Kc(e,t,n,r){return t==null?to:ua(t,n,e.scales[r].log,!1)}var qc=Kc;function Jc(e,t,n,r,i){let a=Da(Fa(e),Fa(t)),o=t-e,s=na(i/r*o,n);do{let e=n[s],t=r*e/o;if(t>=i&&a+(e<5?Xa.get(e):0)<=17)return[e,t]}while(++s<n.length);return[0,0]}function Yc(e){let t,n;return e=e.replace(/(\d+)px/,(e,r)=>(t=wa((n=+r)*X))+`px`),[e,t,n]}function Xc(e){e.show&&[e.font,e.labelFont].forEach(e=>{let t=Ya(e[2]*X,1);e[0]=e[0].replace(/[0-9.]+px/,t+`px`),e[1]=t})}function Zc(e,t,n){let r={mode:Z(e.mode,1)},i=r.mode;function a(e,t,n,r){let i=t.valToPct(e);return r+n*(t.dir==-1?1-i:i)}function o(e,t,n,r){let i=t.valToPct(e);return r+n*(t.dir==-1?i:1-i)}function s(e,t,n,r){return t.ori==0?a(e,t,n,r):o(e,t,n,r)}r.valToPosH=a,r.valToPosV=o;let c=!1;r.status=0;let l=r.root=Gi(Xr);if(e.id!=null&&(l.id=e.id),Vi(l,e.class),e.title){let t=Gi($r,l);t.textContent=e.title}let u=Wi(`canvas`),d=r.ctx=u.getContext(`2d`),f=Gi(ei,l);ea(`click`,f,e=>{e.target===m&&(V!=rn||H!=an)&&ln.click(r,e)},!0);let p=r.under=Gi(ti,f);f.appendChild(u);let m=r.over=Gi(ni,f);e=uo(e);let h=+Z(e.pxAlign,1),g=dc(h);(e.plugins||[]).forEach(t=>{t.opts&&(e=t.opts(r,e)||e)});let _=e.ms||.001,v=r.series=i==1?Rc(e.series||[],js,Xs,!1):zc(e.series||[null],Ys),y=r.axes=Rc(e.axes||[],Os,Ws,!0),b=r.scales={},x=r.bands=e.bands||[];x.forEach(e=>{e.fill=Q(e.fill||null),e.dir=Z(e.dir,-1)});let S=i==2?v[1].facets[0].scale:v[0].scale,C={axes:Ht,series:Nt},w=(e.drawOrder||[`axes`,`series`]).map(e=>C[e]);function T(e){let t=e.distr==3?t=>Aa(t>0?t:e.clamp(r,t,e.min,e.max,e.key)):e.distr==4?t=>Na(t,e.asinh):e.distr==100?t=>e.fwd(t):e=>e;return n=>{let r=t(n),{_min:i,_max:a}=e,o=a-i;return(r-i)/o}}function E(t){let n=b[t];if(n==null){let r=(e.scales||$a)[t]||$a;if(r.from!=null){E(r.from);let e=fo({},b[r.from],r,{key:t});e.valToPct=T(e),b[t]=e}else{n=b[t]=fo({},t==S?Qs:$s,r),n.key=t;let e=n.time,a=n.range,o=no(a);if((t!=S||i==2&&!e)&&(o&&(a[0]==null||a[1]==null)&&(a={min:a[0]==null?fa:{mode:1,hard:a[0],soft:a[0]},max:a[1]==null?fa:{mode:1,hard:a[1],soft:a[1]}},o=!1),!o&&oo(a))){let e=a;a=(t,n,r)=>n==null?to:ha(n,r,e)}n.range=Q(a||(e?Hc:t==S?n.distr==3?Gc:n.distr==4?qc:Vc:n.distr==3?Wc:n.distr==4?Kc:Uc)),n.auto=Q(!o&&n.auto),n.clamp=Q(n.clamp||Zs),n._min=n._max=null,n.valToPct=T(n)}}}E(`x`),E(`y`),i==1&&v.forEach(e=>{E(e.scale)}),y.forEach(e=>{E(e.scale)});for(let t in e.scales)E(t);let D=b[S],ee=D.distr,te,ne;D.ori==0?(Vi(l,Zr),te=a,ne=o):(Vi(l,Qr),te=o,ne=a);let O={};for(let e in b){let t=b[e];(t.min!=null||t.max!=null)&&(O[e]={min:t.min,max:t.max},t.min=t.max=null)}let re=e.tzDate||(e=>new Date(wa(e/_))),ie=e.fmtDate||Ao,ae=_==1?Qo(re):ts(re),oe=rs(re,ns(_==1?Zo:es,ie)),se=cs(re,os(ss,ie)),ce=[],k=r.legend=fo({},ds,e.legend),A=r.cursor=fo({},bs,{drag:{y:i==2}},e.cursor),j=k.show,le=A.show,ue=k.markers;k.idxs=ce,ue.width=Q(ue.width),ue.dash=Q(ue.dash),ue.stroke=Q(ue.stroke),ue.fill=Q(ue.fill);let M,de,N,fe=[],pe=[],me,he=!1,ge={};if(k.live){let e=v[1]?v[1].values:null;he=e!=null,me=he?e(r,1,0):{_:0};for(let e in me)ge[e]=Pi}if(j){if(M=Wi(`table`,li,l),N=Wi(`tbody`,null,M),k.mount(r,M),he){de=Wi(`thead`,null,M,N);let e=Wi(`tr`,null,de);for(var _e in Wi(`th`,null,e),me)Wi(`th`,mi,e).textContent=_e}else Vi(M,di),k.live&&Vi(M,ui)}let ve={show:!0},ye={show:!1};function be(e,t){if(t==0&&(he||!k.live||i==2))return to;let n=[],a=Wi(`tr`,fi,N,N.childNodes[t]);Vi(a,e.class),e.show||Vi(a,ii);let o=Wi(`th`,null,a);if(ue.show){let e=Gi(pi,o);if(t>0){let n=ue.width(r,t);n&&(e.style.border=n+`px `+ue.dash(r,t)+` `+ue.stroke(r,t)),e.style.background=ue.fill(r,t)}}let s=Gi(mi,o);for(var c in e.label instanceof HTMLElement?s.appendChild(e.label):s.textContent=e.label,t>0&&(ue.show||(s.style.color=e.width>0?ue.stroke(r,t):ue.fill(r,t)),Se(`click`,o,t=>{if(A._lock)return;qe(t);let n=v.indexOf(e);if((t.ctrlKey||t.metaKey)!=k.isolate){let e=v.some((e,t)=>t>0&&t!=n&&e.show);v.forEach((t,r)=>{r>0&&K(r,e?r==n?ve:ye:ve,!0,J.setSeries)})}else K(n,{show:!e.show},!0,J.setSeries)},!1),Xe&&Se(Di,o,t=>{A._lock||(qe(t),K(v.indexOf(e),xn,!0,J.setSeries))},!1)),me){let e=Wi(`td`,hi,a);e.textContent=`--`,n.push(e)}return[a,n]}let xe=new Map;function Se(e,t,n,i=!0){let a=xe.get(t)||{},o=A.bind[e](r,t,n,i);o&&(ea(e,t,a[e]=o),xe.set(t,a))}function Ce(e,t,n){let r=xe.get(t)||{};for(let n in r)(e==null||n==e)&&(ta(n,t,r[n]),delete r[n]);e??xe.delete(t)}let we=0,Te=0,P=0,F=0,I=0,Ee=0,De=I,Oe=Ee,ke=P,Ae=F,je=0,Me=0,Ne=0,Pe=0;r.bbox={};let Fe=!1,Ie=!1,Le=!1,Re=!1,ze=!1,Be=!1;function Ve(e,t,n){(n||e!=r.width||t!=r.height)&&He(e,t),Ut(!1),Le=!0,Ie=!0,Jt()}function He(e,t){r.width=we=P=e,r.height=Te=F=t,I=Ee=0,Ge(),Ke();let n=r.bbox;je=n.left=Ka(I*X,.5),Me=n.top=Ka(Ee*X,.5),Ne=n.width=Ka(P*X,.5),Pe=n.height=Ka(F*X,.5)}function Ue(){let e=!1,t=0;for(;!e;){t++;let n=Bt(t),i=Vt(t);e=t==3||n&&i,e||(He(r.width,r.height),Ie=!0)}}function We({width:e,height:t}){Ve(e,t)}r.setSize=We;function Ge(){let e=!1,t=!1,n=!1,r=!1;y.forEach((i,a)=>{if(i.show&&i._show){let{side:a,_size:o}=i,s=a%2,c=o+(i.label==null?0:i.labelSize);c>0&&(s?(P-=c,a==3?(I+=c,r=!0):n=!0):(F-=c,a==0?(Ee+=c,e=!0):t=!0))}}),it[0]=e,it[1]=n,it[2]=t,it[3]=r,P-=ct[1]+ct[3],I+=ct[3],F-=ct[2]+ct[0],Ee+=ct[0]}function Ke(){let e=I+P,t=Ee+F,n=I,r=Ee;function i(i,a){switch(i){case 1:return e+=a,e-a;case 2:return t+=a,t-a;case 3:return n-=a,n+a;case 0:return r-=a,r+a}}y.forEach((e,t)=>{if(e.show&&e._show){let t=e.side;e._pos=i(t,e._size),e.label!=null&&(e._lpos=i(t,e.labelSize))}})}if(A.dataIdx==null){let e=A.hover,n=e.skip=new Set(e.skip??[]);n.add(void 0);let r=e.prox=Q(e.prox),i=e.bias??=0;A.dataIdx=(e,a,o,s)=>{if(a==0)return o;let c=o,l=r(e,a,o,s)??Pa,u=l>=0&&l<Pa,d=D.ori==0?P:F,f=A.left,p=t[0],m=t[a];if(n.has(m[o])){c=null;let e=null,t=null,r;if(i==0||i==-1)for(r=o;e==null&&r-->0;)n.has(m[r])||(e=r);if(i==0||i==1)for(r=o;t==null&&r++<m.length;)n.has(m[r])||(t=r);if(e!=null||t!=null){if(u){let n=e==null?-1/0:te(p[e],D,d,0),r=t==null?1/0:te(p[t],D,d,0),i=f-n,a=r-f;i<=a?i<=l&&(c=e):a<=l&&(c=t)}else c=t==null?e:e==null?t:o-e<=t-o?e:t}}else u&&Sa(f-te(p[o],D,d,0))>l&&(c=null);return c}}let qe=e=>{A.event=e};A.idxs=ce,A._lock=!1;let Je=A.points;Je.show=Q(Je.show),Je.size=Q(Je.size),Je.stroke=Q(Je.stroke),Je.width=Q(Je.width),Je.fill=Q(Je.fill);let Ye=r.focus=fo({},e.focus||{alpha:.3},A.focus),Xe=Ye.prox>=0,Ze=Xe&&Je.one,L=[],Qe=[],$e=[];function et(e,t){let n=Je.show(r,t);if(n instanceof HTMLElement)return Vi(n,ci),Vi(n,e.class),qi(n,-10,-10,P,F),m.insertBefore(n,L[t]),n}function tt(e,t){if(i==1||t>0){let t=i==1&&b[e.scale].time,n=e.value;e.value=t?ao(n)?cs(re,os(n,ie)):n||se:n||Us,e.label=e.label||(t?As:ks)}if(Ze||t>0){e.width=e.width==null?1:e.width,e.paths=e.paths||Ic||Va,e.fillTo=Q(e.fillTo||oc),e.pxAlign=+Z(e.pxAlign,h),e.pxRound=dc(e.pxAlign),e.stroke=Q(e.stroke||null),e.fill=Q(e.fill||null),e._stroke=e._fill=e._paths=e._focus=null;let t=Gs(Da(1,e.width),1),n=e.points=fo({},{size:t,width:Da(1,t*.2),stroke:e.stroke,space:t*2,paths:Lc,_stroke:null,_fill:null},e.points);n.show=Q(n.show),n.filter=Q(n.filter),n.fill=Q(n.fill),n.stroke=Q(n.stroke),n.paths=Q(n.paths),n.pxAlign=e.pxAlign}if(j){let n=be(e,t);fe.splice(t,0,n[0]),pe.splice(t,0,n[1]),k.values.push(null)}if(le){ce.splice(t,0,null);let n=null;Ze?t==0&&(n=et(e,t)):t>0&&(n=et(e,t)),L.splice(t,0,n),Qe.splice(t,0,0),$e.splice(t,0,0)}Yn(`addSeries`,t)}function nt(e,t){t??=v.length,e=i==1?Bc(e,t,js,Xs):Bc(e,t,{},Ys),v.splice(t,0,e),tt(v[t],t)}r.addSeries=nt;function rt(e){if(v.splice(e,1),j){k.values.splice(e,1),pe.splice(e,1);let t=fe.splice(e,1)[0];Ce(null,t.firstChild),t.remove()}le&&(ce.splice(e,1),L.splice(e,1)[0].remove(),Qe.splice(e,1),$e.splice(e,1)),Yn(`delSeries`,e)}r.delSeries=rt;let it=[!1,!1,!1,!1];function at(e,t){if(e._show=e.show,e.show){let n=e.side%2,i=b[e.scale];i??=(e.scale=n?v[1].scale:S,b[e.scale]);let a=i.time;e.size=Q(e.size),e.space=Q(e.space),e.rotate=Q(e.rotate),no(e.incrs)&&e.incrs.forEach(e=>{!Xa.has(e)&&Xa.set(e,Za(e))}),e.incrs=Q(e.incrs||(i.distr==2?Lo:a?_==1?Xo:$o:Ro)),e.splits=Q(e.splits||(a&&i.distr==1?ae:i.distr==3?Ps:i.distr==4?Fs:Ns)),e.stroke=Q(e.stroke),e.grid.stroke=Q(e.grid.stroke),e.ticks.stroke=Q(e.ticks.stroke),e.border.stroke=Q(e.border.stroke);let o=e.values;e.values=no(o)&&!no(o[0])?Q(o):a?no(o)?rs(re,ns(o,ie)):ao(o)?is(re,o):o||oe:o||Ms,e.filter=Q(e.filter||(i.distr>=3&&i.log==10?Vs:i.distr==3&&i.log==2?Hs:Ba)),e.font=Yc(e.font),e.labelFont=Yc(e.labelFont),e._size=e.size(r,null,t,0),e._space=e._rotate=e._incrs=e._found=e._splits=e._values=null,e._size>0&&(it[t]=!0,e._el=Gi(ri,f))}}function ot(e,t,n,r){let[i,a,o,s]=n,c=t%2,l=0;return c==0&&(s||a)&&(l=t==0&&!i||t==2&&!o?wa(Os.size/3):0),c==1&&(i||o)&&(l=t==1&&!a||t==3&&!s?wa(Ws.size/2):0),l}let st=r.padding=(e.padding||[ot,ot,ot,ot]).map(e=>Q(Z(e,ot))),ct=r._padding=st.map((e,t)=>e(r,t,it,0)),lt,ut=null,dt=null,ft=i==1?v[0].idxs:null,pt=null,mt=!1;function ht(e,n){if(t=e??[],r.data=r._data=t,i==2){lt=0;for(let e=1;e<v.length;e++)lt+=t[e][0].length}else{t.length==0&&(r.data=r._data=t=[[]]),pt=t[0],lt=pt.length;let e=t;if(ee==2){e=t.slice();let n=e[0]=Array(lt);for(let e=0;e<lt;e++)n[e]=e}r._data=t=e}if(Ut(!0),Yn(`setData`),ee==2&&(Le=!0),n!==!1){let e=D;e.auto(r,mt)?gt():pn(S,e.min,e.max),Re||=A.left>=0,Be=!0,Jt()}}r.setData=ht;function gt(){mt=!0;let e,n;i==1&&(lt>0?(ut=ft[0]=0,dt=ft[1]=lt-1,e=t[0][ut],n=t[0][dt],ee==2?(e=ut,n=dt):e==n&&(ee==3?[e,n]=la(e,e,D.log,!1):ee==4?[e,n]=ua(e,e,D.log,!1):D.time?n=e+wa(86400/_):[e,n]=ha(e,n,da,!0))):(ut=ft[0]=e=null,dt=ft[1]=n=null)),pn(S,e,n)}let _t,vt,yt,bt,xt,St,Ct,wt,Tt,Et;function Dt(e,t,n,r,i,a){e??=Ci,n??=eo,r??=`butt`,i??=Ci,a??=`round`,e!=_t&&(d.strokeStyle=_t=e),i!=vt&&(d.fillStyle=vt=i),t!=yt&&(d.lineWidth=yt=t),a!=xt&&(d.lineJoin=xt=a),r!=St&&(d.lineCap=St=r),n!=bt&&d.setLineDash(bt=n)}function Ot(e,t,n,r){t!=vt&&(d.fillStyle=vt=t),e!=Ct&&(d.font=Ct=e),n!=wt&&(d.textAlign=wt=n),r!=Tt&&(d.textBaseline=Tt=r)}function kt(e,t,n,i,a=0){if(i.length>0&&e.auto(r,mt)&&(t==null||t.min==null)){let t=Z(ut,0),r=Z(dt,i.length-1),o=n.min==null?ca(i,t,r,a,e.distr==3):[n.min,n.max];e.min=Ea(e.min,n.min=o[0]),e.max=Da(e.max,n.max=o[1])}}let At={min:null,max:null};function jt(){for(let e in b){let t=b[e];O[e]==null&&(t.min==null||O[S]!=null&&t.auto(r,mt))&&(O[e]=At)}for(let e in b){let t=b[e];O[e]==null&&t.from!=null&&O[t.from]!=null&&(O[e]=At)}O[S]!=null&&Ut(!0);let e={};for(let t in O){let n=O[t];if(n!=null){let a=e[t]=uo(b[t],so);if(n.min!=null)fo(a,n);else if(t!=S||i==2){if(lt==0&&a.from==null){let e=a.range(r,null,null,t);a.min=e[0],a.max=e[1]}else a.min=Pa,a.max=-1/0}}}if(lt>0){v.forEach((n,a)=>{if(i==1){let i=n.scale,o=O[i];if(o==null)return;let s=e[i];if(a==0){let e=s.range(r,s.min,s.max,i);s.min=e[0],s.max=e[1],ut=na(s.min,t[0]),dt=na(s.max,t[0]),dt-ut>1&&(t[0][ut]<s.min&&ut++,t[0][dt]>s.max&&dt--),n.min=pt[ut],n.max=pt[dt]}else n.show&&n.auto&&kt(s,o,n,t[a],n.sorted);n.idxs[0]=ut,n.idxs[1]=dt}else if(a>0&&n.show&&n.auto){let[r,i]=n.facets,o=r.scale,s=i.scale,[c,l]=t[a],u=e[o],d=e[s];u!=null&&kt(u,O[o],r,c,r.sorted),d!=null&&kt(d,O[s],i,l,i.sorted),n.min=i.min,n.max=i.max}});for(let t in e){let n=e[t],i=O[t];if(n.from==null&&(i==null||i.min==null)){let e=n.range(r,n.min==Pa?null:n.min,n.max==-1/0?null:n.max,t);n.min=e[0],n.max=e[1]}}}for(let t in e){let n=e[t];if(n.from!=null){let i=e[n.from];if(i.min==null)n.min=n.max=null;else{let e=n.range(r,i.min,i.max,t);n.min=e[0],n.max=e[1]}}}let n={},a=!1;for(let t in e){let r=e[t],i=b[t];if(i.min!=r.min||i.max!=r.max){i.min=r.min,i.max=r.max;let e=i.distr;i._min=e==3?Aa(i.min):e==4?Na(i.min,i.asinh):e==100?i.fwd(i.min):i.min,i._max=e==3?Aa(i.max):e==4?Na(i.max,i.asinh):e==100?i.fwd(i.max):i.max,n[t]=a=!0}}if(a){v.forEach((e,t)=>{i==2?t>0&&n.y&&(e._paths=null):n[e.scale]&&(e._paths=null)});for(let e in n)Le=!0,Yn(`setScale`,e);le&&A.left>=0&&(Re=Be=!0)}for(let e in O)O[e]=null}function Mt(e){let t=Ia(ut-1,0,lt-1),n=Ia(dt+1,0,lt-1);for(;e[t]==null&&t>0;)t--;for(;e[n]==null&&n<lt-1;)n++;return[t,n]}function Nt(){if(lt>0){let e=v.some(e=>e._focus)&&Et!=Ye.alpha;e&&(d.globalAlpha=Et=Ye.alpha),v.forEach((e,n)=>{if(n>0&&e.show&&(Pt(n,!1),Pt(n,!0),e._paths==null)){let a=Et;Et!=e.alpha&&(d.globalAlpha=Et=e.alpha);let o=i==2?[0,t[n][0].length-1]:Mt(t[n]);e._paths=e.paths(r,n,o[0],o[1]),Et!=a&&(d.globalAlpha=Et=a)}}),v.forEach((e,t)=>{if(t>0&&e.show){let n=Et;Et!=e.alpha&&(d.globalAlpha=Et=e.alpha),e._paths!=null&&Ft(t,!1);{let n=e._paths==null?null:e._paths.gaps,i=e.points.show(r,t,ut,dt,n),a=e.points.filter(r,t,i,n);(i||a)&&(e.points._paths=e.points.paths(r,t,ut,dt,a),Ft(t,!0))}Et!=n&&(d.globalAlpha=Et=n),Yn(`drawSeries`,t)}}),e&&(d.globalAlpha=Et=1)}}function Pt(e,t){let n=t?v[e].points:v[e];n._stroke=n.stroke(r,e),n._fill=n.fill(r,e)}function Ft(e,t){let n=t?v[e].points:v[e],{stroke:r,fill:i,clip:a,flags:o,_stroke:s=n._stroke,_fill:c=n._fill,_width:l=n.width}=n._paths;l=Ya(l*X,3);let u=null,f=l%2/2;t&&c==null&&(c=l>0?`#fff`:s);let p=n.pxAlign==1&&f>0;if(p&&d.translate(f,f),!t){let e=je-l/2,t=Me-l/2,n=Ne+l,r=Pe+l;u=new Path2D,u.rect(e,t,n,r)}t?Lt(s,l,n.dash,n.cap,c,r,i,o,a):It(e,s,l,n.dash,n.cap,c,r,i,o,u,a),p&&d.translate(-f,-f)}function It(e,n,i,a,o,s,c,l,u,d,f){let p=!1;u!=0&&x.forEach((m,h)=>{if(m.series[0]==e){let e=v[m.series[1]],g=t[m.series[1]],_=(e._paths||$a).band;no(_)&&(_=m.dir==1?_[0]:_[1]);let y,b=null;e.show&&_&&ga(g,ut,dt)?(b=m.fill(r,h)||s,y=e._paths.clip):_=null,Lt(n,i,a,o,b,c,l,u,d,f,y,_),p=!0}}),p||Lt(n,i,a,o,s,c,l,u,d,f)}function Lt(e,t,n,r,i,a,o,s,c,l,u,f){Dt(e,t,n,r,i),(c||l||f)&&(d.save(),c&&d.clip(c),l&&d.clip(l)),f?(s&3)==3?(d.clip(f),u&&d.clip(u),z(i,o),R(e,a,t)):s&rc?(z(i,o),d.clip(f),R(e,a,t)):s&nc&&(d.save(),d.clip(f),u&&d.clip(u),z(i,o),d.restore(),R(e,a,t)):(z(i,o),R(e,a,t)),(c||l||f)&&d.restore()}function R(e,t,n){n>0&&(t instanceof Map?t.forEach((e,t)=>{d.strokeStyle=_t=t,d.stroke(e)}):t!=null&&e&&d.stroke(t))}function z(e,t){t instanceof Map?t.forEach((e,t)=>{d.fillStyle=vt=t,d.fill(e)}):t!=null&&e&&d.fill(t)}function Rt(e,t,n,i){let a=y[e],o;if(i<=0)o=[0,0];else{let s=a._space=a.space(r,e,t,n,i);o=Jc(t,n,a._incrs=a.incrs(r,e,t,n,i,s),i,s)}return a._found=o}function zt(e,t,n,r,i,a,o,s,c,l){let u=o%2/2;h==1&&d.translate(u,u),Dt(s,o,c,l,s),d.beginPath();let f,p,m,g,_=i+(r==0||r==3?-a:a);n==0?(p=i,g=_):(f=i,m=_);for(let r=0;r<e.length;r++)t[r]!=null&&(n==0?f=m=e[r]:p=g=e[r],d.moveTo(f,p),d.lineTo(m,g));d.stroke(),h==1&&d.translate(-u,-u)}function Bt(e){let t=!0;return y.forEach((n,i)=>{if(!n.show)return;let a=b[n.scale];if(a.min==null){n._show&&(t=!1,n._show=!1,Ut(!1));return}n._show||(t=!1,n._show=!0,Ut(!1));let o=n.side,s=o%2,{min:c,max:l}=a,[u,d]=Rt(i,c,l,s==0?P:F);if(d==0)return;let f=a.distr==2,p=n._splits=n.splits(r,i,c,l,u,d,f),m=a.distr==2?p.map(e=>pt[e]):p,h=a.distr==2?pt[p[1]]-pt[p[0]]:u,g=n._values=n.values(r,n.filter(r,m,i,d,h),i,d,h);n._rotate=o==2?n.rotate(r,g,i,d):0;let _=n._size;n._size=Ta(n.size(r,g,i,e)),_!=null&&n._size!=_&&(t=!1)}),t}function Vt(e){let t=!0;return st.forEach((n,i)=>{let a=n(r,i,it,e);a!=ct[i]&&(t=!1),ct[i]=a}),t}function Ht(){for(let e=0;e<y.length;e++){let t=y[e];if(!t.show||!t._show)continue;let n=t.side,i=n%2,a,o,c=t.stroke(r,e),l=n==0||n==3?-1:1,[u,f]=t._found;if(t.label!=null){let s=t.labelGap*l,p=wa((t._lpos+s)*X);Ot(t.labelFont[0],c,`center`,n==2?vi:yi),d.save(),i==1?(a=o=0,d.translate(p,wa(Me+Pe/2)),d.rotate((n==3?-xa:xa)/2)):(a=wa(je+Ne/2),o=p);let m=La(t.label)?t.label(r,e,u,f):t.label;d.fillText(m,a,o),d.restore()}if(f==0)continue;let p=b[t.scale],m=i==0?Ne:Pe,h=i==0?je:Me,_=t._splits,v=p.distr==2?_.map(e=>pt[e]):_,x=p.distr==2?pt[_[1]]-pt[_[0]]:u,S=t.ticks,C=t.border,w=S.show?S.size:0,T=wa(w*X),E=wa((t.alignTo==2?t._size-w-t.gap:t.gap)*X),D=t._rotate*-xa/180,ee=g(t._pos*X),te=ee+(T+E)*l;o=i==0?te:0,a=i==1?te:0;let ne=t.font[0];Ot(ne,c,t.align==1?bi:t.align==2?xi:D>0?bi:D<0?xi:i==0?`center`:n==3?xi:bi,D||i==1?`middle`:n==2?vi:yi);let O=t.font[1]*t.lineGap,re=_.map(e=>g(s(e,p,m,h))),ie=t._values;for(let e=0;e<ie.length;e++){let t=ie[e];if(t!=null){i==0?a=re[e]:o=re[e],t=``+t;let n=t.indexOf(`
`)==-1?[t]:t.split(/\n/gm);for(let e=0;e<n.length;e++){let t=n[e];D?(d.save(),d.translate(a,o+e*O),d.rotate(D),d.fillText(t,0,0),d.restore()):d.fillText(t,a,o+e*O)}}}S.show&&zt(re,S.filter(r,v,e,f,x),i,n,ee,T,Ya(S.width*X,3),S.stroke(r,e),S.dash,S.cap);let ae=t.grid;ae.show&&zt(re,ae.filter(r,v,e,f,x),i,i==0?2:1,i==0?Me:je,i==0?Pe:Ne,Ya(ae.width*X,3),ae.stroke(r,e),ae.dash,ae.cap),C.show&&zt([ee],[1],+(i==0),i==0?1:2,i==1?Me:je,i==1?Pe:Ne,Ya(C.width*X,3),C.stroke(r,e),C.dash,C.cap)}Yn(`drawAxes`)}function Ut(e){v.forEach((t,n)=>{n>0&&(t._paths=null,e&&(i==1?(t.min=null,t.max=null):t.facets.forEach(e=>{e.min=null,e.max=null})))})}let Wt=!1,Gt=!1,Kt=[];function qt(){Gt=!1;for(let e=0;e<Kt.length;e++)Yn(...Kt[e]);Kt.length=0}function Jt(){Wt||=(vo(Xt),!0)}function Yt(e,t=!1){Wt=!0,Gt=t,e(r),Xt(),t&&Kt.length>0&&queueMicrotask(qt)}r.batch=Yt;function Xt(){if(Fe&&=(jt(),!1),Le&&=(Ue(),!1),Ie){if(Ui(p,bi,I),Ui(p,vi,Ee),Ui(p,gi,P),Ui(p,_i,F),Ui(m,bi,I),Ui(m,vi,Ee),Ui(m,gi,P),Ui(m,_i,F),Ui(f,gi,we),Ui(f,_i,Te),u.width=wa(we*X),u.height=wa(Te*X),y.forEach(({_el:e,_show:t,_size:n,_pos:r,side:i})=>{if(e!=null){if(t){let t=i===3||i===0?n:0,a=i%2==1;Ui(e,a?`left`:`top`,r-t),Ui(e,a?`width`:`height`,n),Ui(e,a?`top`:`left`,a?Ee:I),Ui(e,a?`height`:`width`,a?F:P),Hi(e,ii)}else Vi(e,ii)}}),_t=vt=yt=xt=St=Ct=wt=Tt=bt=null,Et=1,Nn(!0),I!=De||Ee!=Oe||P!=ke||F!=Ae){Ut(!1);let e=P/ke,t=F/Ae;if(le&&!Re&&A.left>=0){A.left*=e,A.top*=t,$t&&qi($t,wa(A.left),0,P,F),en&&qi(en,0,wa(A.top),P,F);for(let n=0;n<L.length;n++){let r=L[n];r!=null&&(Qe[n]*=e,$e[n]*=t,qi(r,Ta(Qe[n]),Ta($e[n]),P,F))}}if(U.show&&!ze&&U.left>=0&&U.width>0){U.left*=e,U.width*=e,U.top*=t,U.height*=t;for(let e in In)Ui(W,e,U[e])}De=I,Oe=Ee,ke=P,Ae=F}Yn(`setSize`),Ie=!1}we>0&&Te>0&&(d.clearRect(0,0,u.width,u.height),Yn(`drawClear`),w.forEach(e=>e()),Yn(`draw`)),U.show&&ze&&(fn(U),ze=!1),le&&Re&&(Mn(null,!0,!1),Re=!1),k.show&&k.live&&Be&&(An(),Be=!1),c||(c=!0,r.status=1,Yn(`ready`)),mt=!1,Wt=!1}r.redraw=(e,t)=>{Le=t||!1,e===!1?Jt():pn(S,D.min,D.max)};function Zt(e,n){let i=b[e];if(i.from==null){if(lt==0){let t=i.range(r,n.min,n.max,e);n.min=t[0],n.max=t[1]}if(n.min>n.max){let e=n.min;n.min=n.max,n.max=e}if(lt>1&&n.min!=null&&n.max!=null&&n.max-n.min<1e-16)return;e==S&&i.distr==2&&lt>0&&(n.min=na(n.min,t[0]),n.max=na(n.max,t[0]),n.min==n.max&&n.max++),O[e]=n,Fe=!0,Jt()}}r.setScale=Zt;let B,Qt,$t,en,tn,nn,rn,an,on,sn,V,H,cn=!1,ln=A.drag,un=ln.x,dn=ln.y;le&&(A.x&&(B=Gi(oi,m)),A.y&&(Qt=Gi(si,m)),D.ori==0?($t=B,en=Qt):($t=Qt,en=B),V=A.left,H=A.top);let U=r.select=fo({show:!0,over:!0,left:0,width:0,top:0,height:0},e.select),W=U.show?Gi(ai,U.over?m:p):null;function fn(e,t){if(U.show){for(let t in e)U[t]=e[t],t in In&&Ui(W,t,e[t]);t!==!1&&Yn(`setSelect`)}}r.setSelect=fn;function G(e){if(v[e].show)j&&Hi(fe[e],ii);else if(j&&Vi(fe[e],ii),le){let t=Ze?L[0]:L[e];t!=null&&qi(t,-10,-10,P,F)}}function pn(e,t,n){Zt(e,{min:t,max:n})}function K(e,t,n,a){t.focus!=null&&Sn(e),t.show!=null&&v.forEach((n,r)=>{r>0&&(e==r||e==null)&&(n.show=t.show,G(r),i==2?(pn(n.facets[0].scale,null,null),pn(n.facets[1].scale,null,null)):pn(n.scale,null,null),Jt())}),n!==!1&&Yn(`setSeries`,e,t),a&&Qn(`setSeries`,r,e,t)}r.setSeries=K;function mn(e,t){fo(x[e],t)}function hn(e,t){e.fill=Q(e.fill||null),e.dir=Z(e.dir,-1),t??=x.length,x.splice(t,0,e)}function gn(e){e==null?x.length=0:x.splice(e,1)}r.addBand=hn,r.setBand=mn,r.delBand=gn;function _n(e,t){v[e].alpha=t,le&&L[e]!=null&&(L[e].style.opacity=t),j&&fe[e]&&(fe[e].style.opacity=t)}let vn,yn,bn,xn={focus:!0};function Sn(e){if(e!=bn){let t=e==null,n=Ye.alpha!=1;v.forEach((r,a)=>{if(i==1||a>0){let i=t||a==0||a==e;r._focus=t?null:i,n&&_n(a,i?1:Ye.alpha)}}),bn=e,n&&Jt()}}j&&Xe&&Se(Oi,M,e=>{A._lock||(qe(e),bn!=null&&K(null,xn,!0,J.setSeries))});function Cn(e,t,n){let r=b[t];n&&(e=e/X-(r.ori==1?Ee:I));let i=P;r.ori==1&&(i=F,e=i-e),r.dir==-1&&(e=i-e);let a=r._min,o=r._max,s=e/i,c=a+(o-a)*s,l=r.distr;return l==3?Oa(10,c):l==4?Ma(c,r.asinh):l==100?r.bwd(c):c}function wn(e,n){return na(Cn(e,S,n),t[0],ut,dt)}r.valToIdx=e=>na(e,t[0]),r.posToIdx=wn,r.posToVal=Cn,r.valToPos=(e,t,n)=>b[t].ori==0?a(e,b[t],n?Ne:P,n?je:0):o(e,b[t],n?Pe:F,n?Me:0),r.setCursor=(e,t,n)=>{V=e.left,H=e.top,Mn(null,t,n)};function Tn(e,t){Ui(W,bi,U.left=e),Ui(W,gi,U.width=t)}function En(e,t){Ui(W,vi,U.top=e),Ui(W,_i,U.height=t)}let Dn=D.ori==0?Tn:En,On=D.ori==1?Tn:En;function kn(){if(j&&k.live)for(let e=+(i==2);e<v.length;e++){if(e==0&&he)continue;let t=k.values[e],n=0;for(let r in t)pe[e][n++].firstChild.nodeValue=t[r]}}function An(e,t){if(e!=null&&(e.idxs?e.idxs.forEach((e,t)=>{ce[t]=e}):io(e.idx)||ce.fill(e.idx),k.idx=ce[0]),j&&k.live){for(let e=0;e<v.length;e++)(e>0||i==1&&!he)&&jn(e,ce[e]);kn()}Be=!1,t!==!1&&Yn(`setLegend`)}r.setLegend=An;function jn(e,n){let i=v[e],a=e==0&&ee==2?pt:t[e],o;he?o=i.values(r,e,n)??ge:(o=i.value(r,n==null?null:a[n],e,n),o=o==null?ge:{_:o}),k.values[e]=o}function Mn(e,n,a){on=V,sn=H,[V,H]=A.move(r,V,H),A.left=V,A.top=H,le&&($t&&qi($t,wa(V),0,P,F),en&&qi(en,0,wa(H),P,F));let o,s=ut>dt;vn=Pa,yn=null;let c=D.ori==0?P:F,l=D.ori==1?P:F;if(V<0||lt==0||s){o=A.idx=null;for(let e=0;e<v.length;e++){let t=L[e];t!=null&&qi(t,-10,-10,P,F)}Xe&&K(null,xn,!0,e==null&&J.setSeries),k.live&&(ce.fill(o),Be=!0)}else{let e,n,a;i==1&&(e=D.ori==0?V:H,n=Cn(e,S),o=A.idx=na(n,t[0],ut,dt),a=te(t[0][o],D,c,0));let s=-10,u=-10,d=0,f=0,p=!0,m=``,h=``;for(let e=+(i==2);e<v.length;e++){let g=v[e],_=ce[e],y=_==null?null:i==1?t[e][_]:t[e][1][_],x=A.dataIdx(r,e,o,n),S=x==null?null:i==1?t[e][x]:t[e][1][x];if(Be=Be||S!=y||x!=_,ce[e]=x,e>0&&g.show){let n=x==null?-10:x==o?a:te(i==1?t[0][x]:t[e][0][x],D,c,0),_=S==null?-10:ne(S,i==1?b[g.scale]:b[g.facets[1].scale],l,0);if(Xe&&S!=null){let t=D.ori==1?V:H,n=Sa(Ye.dist(r,e,x,_,t));if(n<vn){let r=Ye.bias;if(r!=0){let i=Cn(t,g.scale),a=S>=0?1:-1,o=i>=0?1:-1;o==a&&(o==1?r==1?S>=i:S<=i:r==1?S<=i:S>=i)&&(vn=n,yn=e)}else vn=n,yn=e}}if(Be||Ze){let t,i;D.ori==0?(t=n,i=_):(t=_,i=n);let a,o,c,l,g,v,y=!0,b=Je.bbox;if(b!=null){y=!1;let t=b(r,e);c=t.left,l=t.top,a=t.width,o=t.height}else c=t,l=i,a=o=Je.size(r,e);if(v=Je.fill(r,e),g=Je.stroke(r,e),Ze)e==yn&&vn<=Ye.prox&&(s=c,u=l,d=a,f=o,p=y,m=v,h=g);else{let t=L[e];t!=null&&(Qe[e]=c,$e[e]=l,Zi(t,a,o,y),Yi(t,v,g),qi(t,Ta(c),Ta(l),P,F))}}}}if(Ze){let e=Ye.prox;if(Be||(bn==null?vn<=e:vn>e||yn!=bn)){let e=L[0];e!=null&&(Qe[0]=s,$e[0]=u,Zi(e,d,f,p),Yi(e,m,h),qi(e,Ta(s),Ta(u),P,F))}}}if(U.show&&cn){if(e!=null){let[t,n]=J.scales,[r,i]=J.match,[a,o]=e.cursor.sync.scales,s=e.cursor.drag;if(un=s._x,dn=s._y,un||dn){let{left:s,top:u,width:d,height:f}=e.select,p=e.scales[a].ori,m=e.posToVal,h,g,_,v,y,x=t!=null&&r(t,a),S=n!=null&&i(n,o);x&&un?(p==0?(h=s,g=d):(h=u,g=f),_=b[t],v=te(m(h,a),_,c,0),y=te(m(h+g,a),_,c,0),Dn(Ea(v,y),Sa(y-v))):Dn(0,c),S&&dn?(p==1?(h=s,g=d):(h=u,g=f),_=b[n],v=ne(m(h,o),_,l,0),y=ne(m(h+g,o),_,l,0),On(Ea(v,y),Sa(y-v))):On(0,l)}else Ln()}else{let e=Sa(on-tn),t=Sa(sn-nn);if(D.ori==1){let n=e;e=t,t=n}un=ln.x&&e>=ln.dist,dn=ln.y&&t>=ln.dist;let n=ln.uni;n==null?ln.x&&ln.y&&(un||dn)&&(un=dn=!0):un&&dn&&(un=e>=n,dn=t>=n,!un&&!dn&&(t>e?dn=!0:un=!0));let r,i;un&&(D.ori==0?(r=rn,i=V):(r=an,i=H),Dn(Ea(r,i),Sa(i-r)),dn||On(0,l)),dn&&(D.ori==1?(r=rn,i=V):(r=an,i=H),On(Ea(r,i),Sa(i-r)),un||Dn(0,c)),!un&&!dn&&(Dn(0,0),On(0,0))}}if(ln._x=un,ln._y=dn,e==null){if(a){if(Y!=null){let[e,t]=J.scales;J.values[0]=e==null?null:Cn(D.ori==0?V:H,e),J.values[1]=t==null?null:Cn(D.ori==1?V:H,t)}Qn(wi,r,V,H,P,F,o)}if(Xe){let e=a&&J.setSeries,t=Ye.prox;bn==null?vn<=t&&K(yn,xn,!0,e):vn>t?K(null,xn,!0,e):yn!=bn&&K(yn,xn,!0,e)}}Be&&(k.idx=o,An()),n!==!1&&Yn(`setCursor`)}let q=null;Object.defineProperty(r,"rect",{get(){return q??Nn(!1),q}});function Nn(e=!1){e?q=null:(q=m.getBoundingClientRect(),Yn(`syncRect`,q))}function Pn(e,t,n,r,i,a,o){A._lock||cn&&e!=null&&e.movementX==0&&e.movementY==0||(Fn(e,t,n,r,i,a,o,!1,e!=null),e==null?Mn(t,!0,!1):Mn(null,!0,!0))}function Fn(e,t,n,i,a,o,c,l,u){if(q??Nn(!1),qe(e),e!=null)n=e.clientX-q.left,i=e.clientY-q.top;else{if(n<0||i<0){V=-10,H=-10;return}let[e,r]=J.scales,c=t.cursor.sync,[l,u]=c.values,[d,f]=c.scales,[p,m]=J.match,h=t.axes[0].side%2==1,g=D.ori==0?P:F,_=D.ori==1?P:F,v=h?o:a,y=h?a:o,x=h?i:n,S=h?n:i;if(n=d==null?x/v*g:p(e,d)?s(l,b[e],g,0):-10,i=f==null?S/y*_:m(r,f)?s(u,b[r],_,0):-10,D.ori==1){let e=n;n=i,i=e}}u&&(t==null||t.cursor.event.type==wi)&&((n<=1||n>=P-1)&&(n=Ka(n,P)),(i<=1||i>=F-1)&&(i=Ka(i,F))),l?(tn=n,nn=i,[rn,an]=A.move(r,n,i)):(V=n,H=i)}let In={width:0,height:0,left:0,top:0};function Ln(){fn(In,!1)}let Rn,zn,Bn,Vn;function Hn(e,t,n,i,a,o,s){cn=!0,un=dn=ln._x=ln._y=!1,Fn(e,t,n,i,a,o,s,!0,!1),e!=null&&(Se(Ei,Ii,Un,!1),Qn(Ti,r,rn,an,P,F,null));let{left:c,top:l,width:u,height:d}=U;Rn=c,zn=l,Bn=u,Vn=d}function Un(e,t,n,i,a,o,s){cn=ln._x=ln._y=!1,Fn(e,t,n,i,a,o,s,!1,!0);let{left:c,top:l,width:u,height:d}=U,f=u>0||d>0,p=Rn!=c||zn!=l||Bn!=u||Vn!=d;if(f&&p&&fn(U),ln.setScale&&f&&p){let e=c,t=u,n=l,r=d;if(D.ori==1&&(e=l,t=d,n=c,r=u),un&&pn(S,Cn(e,S),Cn(e+t,S)),dn)for(let e in b){let t=b[e];e!=S&&t.from==null&&t.min!=Pa&&pn(e,Cn(n+r,e),Cn(n,e))}Ln()}else A.lock&&(A._lock=!A._lock,Mn(t,!0,e!=null));e!=null&&(Ce(Ei,Ii),Qn(Ei,r,V,H,P,F,null))}function Wn(e,t,n,r,i,a,o){if(A._lock)return;qe(e);let s=cn;if(cn){let e=!0,t=!0,n,r;D.ori==0?(n=un,r=dn):(n=dn,r=un),n&&r&&(e=V<=10||V>=P-10,t=H<=10||H>=F-10),n&&e&&(V=V<rn?0:P),r&&t&&(H=H<an?0:F),Mn(null,!0,!0),cn=!1}V=-10,H=-10,ce.fill(null),Mn(null,!0,!0),s&&(cn=s)}function Gn(e,t,n,i,a,o,s){A._lock||(qe(e),gt(),Ln(),e!=null&&Qn(ki,r,V,H,P,F,null))}function Kn(){y.forEach(Xc),Ve(r.width,r.height,!0)}ea(Ni,Li,Kn);let qn={};qn.mousedown=Hn,qn.mousemove=Pn,qn.mouseup=Un,qn.dblclick=Gn,qn.setSeries=(e,t,n,i)=>{let a=J.match[2];n=a(r,t,n),n!=-1&&K(n,i,!0,!1)},le&&(Se(Ti,m,Hn),Se(wi,m,Pn),Se(Di,m,e=>{qe(e),Nn(!1)}),Se(Oi,m,Wn),Se(ki,m,Gn),Pc.add(r),r.syncRect=Nn);let Jn=r.hooks=e.hooks||{};function Yn(e,t,n){Gt?Kt.push([e,t,n]):e in Jn&&Jn[e].forEach(e=>{e.call(null,r,t,n)})}(e.plugins||[]).forEach(e=>{for(let t in e.hooks)Jn[t]=(Jn[t]||[]).concat(e.hooks[t])});let Xn=(e,t,n)=>n,J=fo({key:null,setSeries:!1,filters:{pub:Ha,sub:Ha},scales:[S,v[1]?v[1].scale:null],match:[Ua,Ua,Xn],values:[null,null]},A.sync);J.match.length==2&&J.match.push(Xn),A.sync=J;let Y=J.key,Zn=tc(Y);function Qn(e,t,n,r,i,a,o){J.filters.pub(e,t,n,r,i,a,o)&&Zn.pub(e,t,n,r,i,a,o)}Zn.sub(r);function $n(e,t,n,r,i,a,o){J.filters.sub(e,t,n,r,i,a,o)&&qn[e](null,t,n,r,i,a,o)}r.pub=$n;function er(){Zn.unsub(r),Pc.delete(r),xe.clear(),ta(Ni,Li,Kn),l.remove(),M?.remove(),Yn(`destroy`)}r.destroy=er;function tr(){Yn(`init`,e,t),ht(t||e.data,!1),O[S]?Zt(S,O[S]):gt(),ze=U.show&&(U.width>0||U.height>0),Re=Be=!0,Ve(e.width,e.height)}return v.forEach(tt),y.forEach(at),n?n instanceof HTMLElement?(n.appendChild(l),tr()):n(r,tr):tr(),r}Zc.assign=fo,Zc.fmtNum=ya,Zc.rangeNum=ha,Zc.rangeLog=la,Zc.rangeAsinh=ua,Zc.orient=ic,Zc.pxRatio=X,Zc.join=_o,Zc.fmtDate=Ao,Zc.tzDate=Mo,Zc.sync=tc;{Zc.addGap=lc,Zc.clipGaps=cc;let e=Zc.paths={points:Cc};e.linear=Dc,e.stepped=Oc,e.bars=Ac,e.spline=Mc}var Qc=`11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`,$c=60;function el(e,{width:t,weight:n,zoom:r,isLog:i}){let a=[];for(let{xs:o,values:s}of e){let e=i?s.map(e=>e>0?e:null):s,{x:c,low:l,high:u,line:d}=jr(o,e,{buckets:Math.max(50,Math.floor(t)),weight:e.length<$c?0:n,from:r?.[0],to:r?.[1]});a.push({x:c,y:l},{x:c,y:u},{x:c,y:d})}return Pr(a)}var tl=e=>Math.abs(e)>=1e9?`${+(e/1e9).toPrecision(4)}G`:Math.abs(e)>=1e6?`${+(e/1e6).toPrecision(4)}M`:Math.abs(e)>=1e4?`${+(e/1e3).toPrecision(4)}k`:B(e);function nl(e,{title:t,series:n,axis:r,isLog:i,width:a,height:o,data:s,zoom:c,marks:l,onZoom:u}){let d=Rr(`--dim`),f={stroke:Rr(`--grid`),width:1},p=en(t)||en(`test.${t}`),m={stroke:Rr(`--grid`),width:1,size:4};return new Zc({width:a,height:o,legend:{show:!1},cursor:{x:!1,y:!1,points:{show:!1},drag:{x:!0,y:!1,setScale:!1}},select:{show:!0},padding:[8,10,0,0],scales:{x:{time:!1,range:(e,t,n)=>c()??(t===n?[t-1,n+1]:[t,n])},y:i?{distr:3}:{range:rl}},axes:[{stroke:d,grid:f,ticks:m,font:Qc,size:26,gap:4,values:(e,t)=>t.map(r===`time`?e=>qt(e):tl),space:r===`time`?78:58},{stroke:d,grid:f,ticks:m,font:Qc,size:52,gap:4,values:(e,t)=>t.map(e=>e===null?``:p?`${B(e*100)}%`:B(e))}],series:[{},...n.flatMap(({colour:e,dash:t})=>{let n=Rr(e),r={stroke:zr(n,.28),width:1,points:{show:!1},spanGaps:!1};return[r,r,{stroke:n,width:1.7,dash:t,spanGaps:!1,points:{show:il,size:5,fill:n}}]})],bands:n.map(({colour:e},t)=>({series:[t*3+2,t*3+1],fill:zr(Rr(e),.14)})),hooks:{draw:[e=>ol(e,l())],setSelect:[e=>{if(e.select.width<6)return;let t=e.posToVal(e.select.left,`x`),n=e.posToVal(e.select.left+e.select.width,`x`);e.setSelect({left:0,width:0,top:0,height:0},!1),u([t,n])}]}},s,e)}function rl(e,t,n){return t===null||n===null?[0,1]:t===n?t===0?[0,1]:[t-Math.abs(t)*.1,n+Math.abs(t)*.1]:Zc.rangeNum(t,n,.1,!0)}function il(e,t){let n=0;for(let r of e.data[t])if(r!=null&&++n>24)return!1;return!0}var al={checkpoint:`--succeeded`,preemption:`--queued`,restart:`--accent`,failure:`--failed`,suspension:`--suspended`};function ol(e,t){let{ctx:n,bbox:r}=e,i=devicePixelRatio||1;n.save();for(let{x:a,kind:o}of t){let t=Math.round(e.valToPos(a,`x`,!0))+.5;if(!(t<r.left||t>r.left+r.width+1)){if(n.strokeStyle=n.fillStyle=Rr(al[o]??`--dim`),n.lineWidth=i,n.beginPath(),o===`checkpoint`){let e=r.top+r.height;n.moveTo(t,e),n.lineTo(t-3.5*i,e-6*i),n.lineTo(t+3.5*i,e-6*i),n.closePath(),n.fill()}else n.setLineDash([4*i,3*i]),n.moveTo(t,r.top),n.lineTo(t,r.top+r.height),n.stroke(),n.setLineDash([]),n.fillRect(t-3*i,r.top,6*i,6*i)}}n.restore()}var sl=208;function cl({title:e,metric:t,series:n,settings:r,marks:i=[],group:a,onZoom:o,file:s}){let c=De(null),l=De(null),u=De(null),d=De(null),f=De({});f.current={series:n,settings:r,marks:i,onZoom:o};let[p,m]=P(!1),[h,g]=P(0),_=Ir.value;I(()=>{let e=new IntersectionObserver(([e])=>m(e.isIntersecting),{rootMargin:`300px`}),t=new ResizeObserver(([e])=>g(Math.floor(e.contentRect.width)));return e.observe(c.current),t.observe(l.current),()=>{e.disconnect(),t.disconnect()}},[]);let v=n.some(({xs:e})=>e.length>0),y=n.map(({key:e,colour:t,dash:n})=>`${e}${t}${n}`).join(`|`),b=()=>el(f.current.series,{width:h-64,weight:r.weight,zoom:r.zoom,isLog:r.isLog});Ee(()=>{if(!p||h<80||!v)return;let e=nl(l.current,{title:t,series:n,axis:r.axis,isLog:r.isLog,width:h,height:sl,data:b(),zoom:()=>f.current.settings.zoom,marks:()=>f.current.marks,onZoom:e=>f.current.onZoom(e)});d.current=e,u.current=document.createElement(`div`),u.current.className=`chart-cursor`,u.current.hidden=!0,e.over.append(u.current);let i=null,o=t=>e.posToVal(t.clientX-e.over.getBoundingClientRect().left,`x`);return e.over.addEventListener(`pointermove`,e=>a.move(o(e))),e.over.addEventListener(`pointerleave`,()=>a.move(null)),e.over.addEventListener(`pointerdown`,e=>{i=e.clientX}),e.over.addEventListener(`click`,e=>{i!==null&&Math.abs(e.clientX-i)<4&&a.toggleFrozen(o(e))}),e.over.addEventListener(`dblclick`,()=>f.current.onZoom(null)),x(),()=>{d.current=null,e.destroy()}},[p,h,v,y,r.isLog,r.axis,_,t]),I(()=>{d.current&&(d.current.setData(b()),x())},[n,r.weight,r.zoom?.join(),i]);let x=()=>{let e=a.x.peek();if(!d.current||!u.current)return;let t=e===null?-1:d.current.valToPos(e,`x`);u.current.hidden=!(t>=0&&t<=d.current.over.clientWidth),u.current.style.transform=`translateX(${Math.round(t)}px)`,u.current.classList.toggle(`chart-cursor-frozen`,a.isFrozen.peek())};Et(()=>{a.x.value,a.isFrozen.value,x()});let S=e=>{let t=n[0]?.xs??[];if(t.length===0)return;let r={ArrowLeft:-1,ArrowRight:1,PageUp:-20,PageDown:20}[e.key];if(r!==void 0){let n=a.x.value===null?t.length-1:Nr(t,a.x.value)+r,i=t[Math.min(t.length-1,Math.max(0,n))];a.isFrozen.value?a.x.value=i:a.toggleFrozen(i),e.preventDefault()}else e.key===`Escape`&&(a.isFrozen.value=!1,a.x.value=null)},C=`${s}-${e.replace(/[^A-Za-z0-9]+/g,`-`)}`;return R`<figure class="chart panel" ref=${c} aria-label=${e}>
<figcaption class="chart-head"><h2>${e}</h2>
${n.some(({isThinned:e})=>e)&&R`<span
class="dim chart-note"
title="The server chose these points evenly; extremes between them are not shown."
>thinned out</span
>`}
<span class="spacer"></span>
<${Qn} label="⋯" title=${`Save ${e}`} kind="button button-quiet button-small" align="right">
<button type="button" class="menu-item" data-close onClick=${()=>Hr(C,r.axis,n)}>
Points as CSV</button>
<button type="button" class="menu-item" data-close onClick=${()=>Ur(C,r.axis,n)}>
Points as JSON</button>
<button type="button" class="menu-item" data-close disabled=${!d.current}
onClick=${()=>d.current&&Wr(C,e,d.current,n)}>Picture as PNG</button>
</${Qn}>
</figcaption>
<div class=${z(`chart-plot`,!v&&`chart-empty`)} ref=${l} tabindex="0" role="img"
aria-label=${ll(e,n)} onKeyDown=${S} style=${{height:`${sl}px`}}></div>
<${Jr} metric=${t} series=${n} group=${a} better=${tn(t)}
axis=${r.axis} />
</figure>`}function ll(e,t){return`${e}. ${t.map(({label:e,xs:t,values:n})=>t.length===0?`${e}: no points yet`:`${e}: ${t.length} points, last ${B(n[n.length-1])}`).join(`; `)}. Arrow keys move the cursor.`}function ul(e,t=()=>{}){let n=``,r={type:`message`,data:[],id:void 0},i=n=>{if(n===``){r.data.length>0&&e({type:r.type,data:r.data.join(`
`),id:r.id}),r={type:`message`,data:[],id:void 0};return}if(n.startsWith(`:`)){t();return}let i=n.indexOf(`:`),a=i<0?n:n.slice(0,i),o=i<0?``:n.slice(i+1).replace(/^ /,``);a===`data`?r.data.push(o):a===`event`?r.type=o:a===`id`&&(r.id=o)};return e=>{let t=(n+e).split(`
`);n=t.pop();for(let e of t)i(e.endsWith(`\r`)?e.slice(0,-1):e)}}var dl=4e4,fl=400,pl=4e3,ml=1e4;function hl(e,t,{onMessage:n,onEnd:r=()=>{},onError:i=()=>{}}){let a=!1,o,s=null,c=fl,l=null,u=()=>{a=!0,s?.abort(),clearTimeout(l),m()},d=()=>{a||Mt.value||(clearTimeout(l),l=setTimeout(f,c),c=Math.min(pl,c*1.7))};async function f(){if(a||s)return;let l=s=new AbortController,f,p=()=>{clearTimeout(f),f=setTimeout(()=>l.abort(),dl),Nt()};try{let s={"Content-Type":`application/json`,Accept:`text/event-stream`};o&&(s[`Last-Event-ID`]=o);let d=await fetch(gn(e),{method:`POST`,headers:s,body:JSON.stringify(t),signal:l.signal});if(!d.ok)throw await _n(d);p(),c=fl;let f=!1,m=ul(e=>{if(!a){if(e.type===`end`)f=!0,u(),r();else if(e.type===`error`){let t=JSON.parse(e.data);if([`unavailable`,`deadline_exceeded`,`canceled`,`resource_exhausted`].includes(t.code))return;f=!0,u(),i(Error(t.message))}else e.id&&(o=e.id),n(JSON.parse(e.data))}},p),h=new TextDecoder,g=d.body.getReader();for(;;){let{done:e,value:t}=await g.read();if(e||a)break;p(),m(h.decode(t,{stream:!0}))}f||a||l.signal.aborted||Pt()}catch(e){!a&&!(Mt.value&&l.signal.aborted)&&(vn(e)?Pt():(u(),i(e)))}finally{clearTimeout(f),s===l&&(s=null),d()}}let p=null,m=st(()=>{clearTimeout(p),Mt.value?p=setTimeout(()=>s?.abort(),ml):l=setTimeout(f,0)});return u}function gl(e){return{steps:e.map(({step:e})=>Number(e??0)),times:e.map(({time:e})=>Date.parse(e)),values:e.map(({value:e})=>Qt(e??0)),attempts:e.map(({attempt:e})=>e??0),isThinned:!1}}function _l(e,t,n,r,i){let{steps:a,times:o,values:s,attempts:c}=e;if(!(c.length>0&&c[c.length-1]>i)){for(;a.length>0&&a[a.length-1]>=t;)a.pop(),o.pop(),s.pop(),c.pop();a.push(t),o.push(n),s.push(r),c.push(i)}}function vl(e,t){if(!e||e.steps.length===0)return;let{steps:n,times:r}=e;for(let e=0;e<n.length;++e)if(r[e]>=t)return e===0?n[0]:n[e-1];return n[n.length-1]}function yl(e){let t=new Map;for(let n of e){let e=/^(?:train|test|val|valid|validation|eval)[./](.+)$/.exec(n),r=e?e[1]:n;t.has(r)||t.set(r,{title:r,names:[],isResult:!!e});let i=t.get(r);i.names.push(n),i.isResult||=!!e}let n=({title:e,isResult:t})=>e===`loss`?0:e===`accuracy`?1:t?2:/^(lr|samples_per_s|grad|tokens)/.test(e)?3:/^(gpu|cpu|comm|compute|io|host|memory|net|disk)[._]/.test(e)?5:4;return[...t.values()].sort((e,t)=>n(e)-n(t)||e.title.localeCompare(t.title))}var bl=2e3,xl=5e3,Sl=250,Cl=class{series=L(new Map);isLoading=L(!0);error=L(null);#e;#t;#n;#r=()=>{};#i=null;#a=null;#o=!1;constructor(e,{follow:t,names:n,polls:r=!1}){this.#e=e,this.#t=n,this.#n=r,this.#s(t)}close(){this.#o=!0,this.#r(),clearTimeout(this.#i),clearTimeout(this.#a)}async#s(e){try{let t={name:this.#e,max_points:bl,sampling:`METRIC_SAMPLING_EXTREMES`};this.#t&&(t.metrics=this.#t);let n=await bn(`JobService/QueryMetrics`,t);if(this.#o)return;let r=new Map,i=!1;for(let{name:e,points:t}of n.series??[]){let n=gl(t??[]);n.isThinned=n.steps.length>=bl,i||=n.isThinned,r.set(e,n)}this.series.value=r,this.error.value=null,this.isLoading.value=!1,e&&(i||this.#n)?this.#c():e&&this.#l()}catch(e){if(this.#o)return;this.isLoading.value=!1,vn(e)?this.#c():this.error.value=e}}#c(){this.#i=setTimeout(()=>Mt.value?this.#c():this.#s(!0),xl)}#l(){let e=new Map,t={name:this.#e,follow:!0};this.#t&&(t.metrics=this.#t),this.#r=hl(`JobService/WatchMetrics`,t,{onMessage:({points:t})=>{for(let n of t??[]){let t=e.get(n.name);t||e.set(n.name,t=gl([])),_l(t,Number(n.step),Date.parse(n.time),Qt(n.value),n.attempt)}this.#a||=setTimeout(()=>{this.#a=null;let t=new Map(this.series.value);for(let[n,r]of e){let e=t.get(n);(!e||r.steps.length>=e.steps.length||wl(r.steps)>wl(e.steps))&&t.set(n,{...r})}this.series.value=t},Sl)},onError:e=>{this.error.value=e}})}},wl=e=>e.length===0?-1:e[e.length-1];function Tl(e){return[...new Set(e.flatMap(e=>Object.keys(e)))].sort().map(t=>{let n=e.map(e=>e[t]),r=n.map(e=>JSON.stringify(e));return{path:t,values:n,differs:r.some(e=>e!==r[0])}})}function El(e){let t={};for(let n of e){let r=n.split(`.`),i=1,a=()=>r.slice(-i).join(`.`);for(;i<r.length&&e.some(e=>e!==n&&`.${e}`.endsWith(`.${a()}`));)++i;t[n]=a()}return t}var Dl=50,Ol=4;function kl(){let e=pn(W(`jobs`)).slice(0,Dl),[t,n]=P([]),[r,i]=P(null);I(()=>{let t=!1;return Sn(e,Ol,async e=>or(await bn(`JobService/GetJob`,{name:`jobs/${e}`}))).then(e=>!t&&(n(e),i(null))).catch(e=>!t&&i(e)),()=>{t=!0}},[e.join(),At.value]);let a=Al(t),o=Er(),s=Or(),c=W(`base`),l=e=>G({base:e===c?``:e});Ut([{key:`u`,does:`back to all runs`,action:()=>U(`/`)}]);let u=t.filter(({id:t})=>e.includes(String(t))),d=jl(u,a,o.axis,c);return R`<main class="view" id="main">
<p class="crumbs"><${K} href="/">Runs</${K}> / compare</p>
<div class="view-head"><h1>${e.length===1?`Compare 1 run with others`:`${e.length} runs compared`}</h1>
<span class="spacer"></span><${Ml} ids=${e} /></div>
<${J} error=${r} />
${e.length===0?R`<${Y} title="No run is chosen">Add one by its number, or select some in <${K}
href="/">the list</${K}>.</${Y}>`:R`<div class="stack">
<${Nl} runs=${u} ids=${e} base=${c} setBase=${l} />
<${kr} settings=${o} group=${s} />
<div class="charts">
${d.map(({title:t,names:n,series:r})=>R`<${cl}
key=${t}
title=${t}
metric=${n[0]}
series=${r}
settings=${o}
group=${s}
onZoom=${Dr}
file=${`compare-${e.join(`-`)}`}
/>`)}
</div>
<${Pl} runs=${u} base=${c} />
</div>`}
</main>`}function Al(e){let t=De(new Map),[,n]=P(0);return I(()=>{let r=new Map(e.map(e=>[e.name,e]));for(let[e,n]of t.current)r.has(e)||(n.close(),t.current.delete(e));for(let[e,n]of r)t.current.has(e)||t.current.set(e,new Cl(e,{follow:sn(n.state),polls:!0}));n(e=>e+1)},[e.map(({name:e})=>e).join()]),I(()=>()=>t.current.forEach(e=>e.close()),[]),new Map([...t.current].map(([e,t])=>[e,t.series.value]))}function jl(e,t,n,r){let i=De(new Map),a=[...new Set(e.flatMap(({name:e})=>[...t.get(e)?.keys()??[]]))].sort();return Oe(()=>yl(a).flatMap(e=>e.names.sort().reverse().map(e=>({title:e,names:[e]}))),[a.join(`|`)]).map(a=>{let o=e.flatMap((e,i)=>{let o=t.get(e.name)?.get(a.names[0]);if(!o)return[];let s=e.started??e.created;return[{key:e.name,label:`${e.id} ${e.title}`,colour:Lr(i),isThinned:o.isThinned,dash:i>=10?[6,3]:void 0,href:`/jobs/${e.id}`,isBase:String(e.id)===r,xs:n===`time`?o.times.map(e=>(e-s)/1e3):o.steps,values:o.values,points:o}]}),s=i.current.get(a.title);return s&&s.axis===n&&s.series.length===o.length&&o.every((e,t)=>e.points===s.series[t].points&&e.key===s.series[t].key&&e.isBase===s.series[t].isBase)||i.current.set(a.title,{axis:n,series:o}),{...a,series:i.current.get(a.title).series}})}function Ml({ids:e}){let[t,n]=P(``);return R`<form class="add-run" onSubmit=${r=>{r.preventDefault();let i=t.match(/\d+/g)??[];G({jobs:[...new Set([...e,...i])].join(`,`)}),n(``)}}>
<input
class="input"
placeholder="Add runs: 12 15"
aria-label="Add runs by number"
value=${t}
onInput=${e=>n(e.target.value)}
/><button class="button">Add</button>
</form>`}function Nl({runs:e,ids:t,base:n,setBase:r}){let i=[...new Set(e.flatMap(({metrics:e})=>Object.keys(e)))].sort((e,t)=>e.startsWith(`test.`)===t.startsWith(`test.`)?e.localeCompare(t):e.startsWith(`test.`)?-1:1).slice(0,6),a=Object.fromEntries(i.map(t=>{let n=e.map(({metrics:e})=>e[t]).filter(e=>typeof e==`number`),r={more:Math.max,less:Math.min}[tn(t)];return[t,r&&n.length>1?r(...n):void 0]}));return R`<section class="panel scroll-x" aria-label="Runs">
<table class="table">
<thead>
<tr>
<th scope="col">Run</th>
<th scope="col">State</th>
${i.map(e=>R`<th scope="col" class="right" key=${e}>${e}</th>`)}
<th scope="col" class="right">Ran for</th>
<th scope="col" class="right">Device time</th>
<th scope="col"></th>
</tr>
</thead>
<tbody>
${e.map((e,o)=>{let s=String(e.id)===n;return R`<tr key=${e.name}>
<td class="nowrap"><span class="swatch swatch-inline" style=${{background:`var(${Lr(o)})`}}
aria-hidden="true"></span>
<${K} href=${`/jobs/${e.id}`}>${e.id} ${e.title}</${K}></td>
<td><${Jn} state=${e.state} /></td>
${i.map(t=>R`<td
key=${t}
class=${z(`right`,e.metrics[t]===a[t]&&a[t]!==void 0&&`best-value`)}
>
${$t(t,e.metrics[t])}
</td>`)}
<td class="right">${qt(lr(e,jt.value))}</td><td class="right">${qt(e.deviceTime)}</td>
<td class="right nowrap"><button type="button"
class=${z(`button button-small`,s?`button-primary`:`button-quiet`)} aria-pressed=${s}
onClick=${()=>r(String(e.id))}>${s?`Baseline`:`Make baseline`}</button>
<button type="button" class="button button-quiet button-small" aria-label=${`Remove run ${e.id}`}
onClick=${()=>G({jobs:t.filter(t=>t!==String(e.id)).join(`,`),base:s?``:n})}>×</button></td>
</tr>`})}
</tbody>
</table>
</section>`}function Pl({runs:e,base:t}){let n=W(`fields`)===`all`,r=Oe(()=>Tl(e.map(cr)),[e]),i=r.filter(({path:e,differs:t})=>(n||t)&&e!==`name`),a=El(i.map(({path:e})=>e)),o=e.findIndex(({id:e})=>String(e)===t);return e.length===0?null:R`<section class="panel scroll-x" aria-label="Config">
<div class="panel-head">
<h2>Config</h2>
<label class="check"
><input
type="checkbox"
checked=${!n}
onChange=${e=>G({fields:e.target.checked?``:`all`})}
/>
Only what differs</label
>
<span class="dim"
>${r.filter(({differs:e,path:t})=>e&&t!==`name`).length} of ${r.length} fields
differ</span
>
</div>
${i.length===0?R`<p class="panel-body dim">
${e.length<2?`Add a second run to see what differs.`:`The specs are the same.`}
</p>`:R`<table class="table diff-table">
<thead>
<tr>
<th scope="col">Field</th>
${e.map((e,t)=>R`<th scope="col" key=${e.name}>
<span
class="swatch swatch-inline"
style=${{background:`var(${Lr(t)})`}}
aria-hidden="true"
></span
>${e.id}
</th>`)}
</tr>
</thead>
<tbody>
${i.map(({path:e,values:t,differs:n})=>R`<tr key=${e}>
<th scope="row" class="mono" title=${e}>${a[e]}</th>
${t.map((e,r)=>R`<td
key=${r}
class=${z(`mono`,o>=0&&r!==o&&JSON.stringify(e)!==JSON.stringify(t[o])&&`diff-other`,!n&&`dim`)}
>
${e===void 0?`–`:Vn(e)}
</td>`)}
</tr>`)}
</tbody>
</table>`}
</section>`}var Fl={suspend:{call:`JobService/SuspendJob`,title:`Suspend`,text:e=>e.state===`JOB_STATE_QUEUED`?`It leaves the queue until it is resumed.`:`It writes a checkpoint, stops and frees its devices until it is resumed.`},resume:{call:`JobService/ResumeJob`,title:`Resume`,text:()=>`It joins the queue again and goes on from its checkpoint.`},cancel:{call:`JobService/CancelJob`,title:`Cancel`,kind:`button-danger`,text:()=>`It stops for good and cannot be resumed. What it has written stays.`}};function Il({job:e,row:t}){let[n,r]=P(null),[i,a]=P(``),o=Mn(t.user),s=[/RUNNING|STARTING|QUEUED/.test(e.state)&&`suspend`,e.state===`JOB_STATE_SUSPENDED`&&`resume`,sn(e.state)&&e.state!==`JOB_STATE_STOPPING`&&`cancel`].filter(Boolean),c=Fl[n],l=()=>r(null);return R`
<${K} class="button" href=${`/compare?jobs=${t.id}`}>Compare</${K}>
${jn()&&R`<${K} class="button" href=${`/jobs/${t.id}/clone`}>Clone with changes</${K}>`}
${s.map(e=>R`<button
type="button"
key=${e}
class=${`button ${Fl[e].kind??``}`}
disabled=${!o}
title=${o?void 0:`Only its owner and operators may do this`}
onClick=${()=>r(e)}
>
${Fl[e].title}…
</button>`)}
${c&&R`<${$n} title=${`${c.title} ${t.title}?`} text=${c.text(e)}
action=${`${c.title} the job`} kind=${c.kind} onNo=${l}
onYes=${async()=>{await bn(c.call,n===`resume`?{name:e.name}:{name:e.name,reason:i}),l()}}>
${n!==`resume`&&R`<label class="field"
>Why, for the history
<input class="input" value=${i} maxlength="200" onInput=${e=>a(e.target.value)}
/></label>`}
</${$n}>`}`}var Ll=[`black`,`red`,`green`,`yellow`,`blue`,`magenta`,`cyan`,`white`];function Rl(e,t={}){let n=[],r=e=>{let r=Vl(e);if(r===``)return;let i=Wl(t),a=n[n.length-1];a&&a.classes===i?a.text+=r:n.push({text:r,classes:i})},i=/\u001b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g,a=0;for(let n of e.matchAll(i))r(e.slice(a,n.index)),a=n.index+n[0].length,n[2]===`m`&&(t=Hl(t,n[1]));return r(e.slice(a)),{pieces:n,style:t}}var zl=e=>Rl(e).pieces.map(({text:e})=>e).join(``);function Bl(e){let t=e.replace(/\r+$/,``).split(`\r`);return t[t.length-1]}function Vl(e){return e.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,``)}function Hl(e,t){let n=t===``?[0]:t.split(/[;:]/).map(Number),r={...e};for(let e=0;e<n.length;++e){let t=n[e];if(t===0)r={};else if(t===1)r.bold=!0;else if(t===2)r.dim=!0;else if(t===3)r.italic=!0;else if(t===4)r.underline=!0;else if(t===7)r.inverse=!0;else if(t===22)r.bold=r.dim=!1;else if(t===23)r.italic=!1;else if(t===24)r.underline=!1;else if(t===27)r.inverse=!1;else if(t>=30&&t<=37)r.colour=Ll[t-30];else if(t>=90&&t<=97)r.colour=Ll[t-90];else if(t===39)r.colour=void 0;else if(t>=40&&t<=47)r.background=Ll[t-40];else if(t===49)r.background=void 0;else if(t===38||t===48){let i=n[e+1]===5?Ul(n[e+2]):void 0;t===38?r.colour=i:r.background=i,e+=n[e+1]===5?2:n[e+1]===2?4:0}}return r}var Ul=e=>e<16?Ll[e%8]:void 0;function Wl(e){let t=[];for(let n of[`bold`,`dim`,`italic`,`underline`,`inverse`])e[n]&&t.push(`ansi-${n}`);return e.colour&&t.push(`ansi-${e.colour}`),e.background&&t.push(`ansi-on-${e.background}`),t.join(` `)}var Gl=e=>zl(e).replace(/\?\[[0-9;]*m/g,``),Kl={succeeded:`succeeded`,failed:`failed`,lost:`failed`,preempted:`suspended`,cancelled:`cancelled`};function ql({attempts:e,events:t,job:n}){return R`<div class="stack">
<section class="panel scroll-x" aria-label="Attempts">
<div class="panel-head"><h2>Attempts</h2></div>
${e.length===0?R`<p class="panel-body dim">None has begun.</p>`:R`<table class="table">
<thead>
<tr>
<th scope="col">#</th>
<th scope="col">State</th>
<th scope="col">From step</th>
<th scope="col">Began</th>
<th scope="col">Ran for</th>
<th scope="col">Ran on</th>
<th scope="col">Isolation</th>
<th scope="col">Log</th>
</tr>
</thead>
<tbody>
${e.toReversed().map(e=>{let t=an(e.state,`ATTEMPT_STATE_`),n=Yt(e.start_time),r=Yt(e.end_time)??Date.now();return R`<tr key=${e.name}><td>${V(e.name)}</td>
<td><span class=${`state state-${Kl[t]??`running`}`}>${t}</span>
${e.failure&&R`<p class="failure-message">
${e.failure.reason} ${Gl(e.failure.message??``)}
${ln(e.failure.exit_code)&&` (${ln(e.failure.exit_code)})`}
</p>`}</td>
<td>${B(e.resumed_from_step??0)}</td><td class="nowrap">
<${Zn} ms=${n??Yt(e.create_time)} /></td>
<td>${n===void 0?`–`:qt((r-n)/1e3)}</td>
<td>${(e.placement??[]).slice(0,16).map(({rank:e=0,worker:t,device:n,cpus:r})=>R`<div key=${e} class="nowrap">
<span class="dim">${e}</span>
${` ${V(t)}${n?` ${n}`:``}`}
${r?R`<span class="dim">${` ${r} cpu`}</span>`:``}
</div>`)}
${(e.placement??[]).length>16&&R`<div class="dim">and ${e.placement.length-16} more</div>`}</td>
<td>${an(e.isolation,`ISOLATION_`)||`–`}</td>
<td><${K} href=${fn({tab:`logs`,attempt:V(e.name)})}>Log</${K}></td></tr>`})}
</tbody>
</table>`}
</section>
${(n.progress?.hosting??[]).length>1&&R`<${Jl} progress=${n.progress} placement=${n.placement??[]} />`}
<section class="panel scroll-x" tabindex="0" aria-label="Events">
<div class="panel-head"><h2>Events</h2></div>
<table class="table">
<thead>
<tr>
<th scope="col">Time</th>
<th scope="col">Event</th>
<th scope="col">By</th>
<th scope="col">Details</th>
</tr>
</thead>
<tbody>
${t.toReversed().map(e=>R`<tr key=${e.sequence}>
<td class="nowrap"><${Zn} ms=${Yt(e.time)} /></td>
<td class="nowrap">${an(e.type,``)}</td>
<td class="nowrap dim">${e.actor}</td>
<td>${Gl(e.message??``)}</td>
</tr>`)}
</tbody>
</table>
</section>
</div>`}function Jl({progress:e,placement:t}){return R`<section class="panel scroll-x" tabindex="0" aria-label="Who computes what">
<div class="panel-head">
<h2>Who computes what</h2>
<span class="dim">${e.hosting_reason}</span>
</div>
<table class="table">
<thead>
<tr>
<th scope="col">Rank</th>
<th scope="col">Device</th>
<th scope="col" class="right">Replicas</th>
<th scope="col" class="right">Samples/s</th>
</tr>
</thead>
<tbody>
${e.hosting.map(({rank:e=0,replicas:n,stage:r,samples_per_s:i})=>R`<tr key=${e}>
<td>${e}${r?` stage ${r}`:``}</td>
<td>${t[e]?.device??`–`}</td>
<td class="right">${n}</td>
<td class="right">${i?B(i):`–`}</td>
</tr>`)}
</tbody>
</table>
</section>`}var Yl=(e,t)=>`/files/${e}/${t.split(`/`).map(encodeURIComponent).join(`/`)}`;function Xl({job:e,checkpoints:t}){let n=(e.resolved_spec?.outputs??[]).length>0,r=q(`CheckpointService/GetOutputs`,{name:e.name},{key:e.state,isOff:!n}),i=r.data?.files??[],a=[...new Set(t.flatMap(e=>Object.keys(e.metrics??{})))].sort();return t.length===0&&!n?R`<${Y}
title="No files">The job has written no checkpoint, and its spec names no outputs.</${Y}>`:R`<div class="stack">
${t.length>0&&R`<section class="panel scroll-x" aria-label="Checkpoints">
<div class="panel-head">
<h2>Checkpoints</h2>
<span class="dim">${rn(e.stored?.checkpoints??0)} on the server</span>
</div>
<table class="table">
<thead>
<tr>
<th scope="col" class="right">Step</th>
<th scope="col">Written</th>
${a.map(e=>R`<th scope="col" class="right" key=${e}>${e}</th>`)}
<th scope="col">Files</th>
</tr>
</thead>
<tbody>
${t.toReversed().map(e=>R`<tr key=${e.name}>
<td class="right nowrap">
${B(e.step)}${e.is_best&&R` <span class="tag best-tag">best</span>`}
</td>
<td class="nowrap"><${Zn} ms=${Yt(e.create_time)} /></td>
${a.map(t=>R`<td class="right" key=${t}>${$t(t,e.metrics?.[t])}</td>`)}
<td>
${e.damage&&R`<p class="error-text">${e.damage}</p>`}
<ul class="file-list">
${(e.files??[]).map(t=>R`<li key=${t.name}>
<a href=${Yl(e.name,t.name)} download title=${t.hash}>${t.name}</a>
<span class="dim num"> ${rn(t.size)}</span>
</li>`)}
</ul>
</td>
</tr>`)}
</tbody>
</table>
</section>`}
${n&&R`<section class="panel" aria-label="Outputs">
<div class="panel-head">
<h2>Outputs</h2>
${r.data?.is_pending&&R`<span class="dim">may still change</span>`}
</div>
${i.length===0?R`<p class="panel-body dim">None have come yet.</p>`:R`<table class="table">
<tbody>
${i.map(e=>R`<tr key=${e.name}>
<td class="mono">${e.name}</td>
<td class="right">${rn(e.size)}</td>
</tr>`)}
</tbody>
</table>
<div class="panel-body"><code>trainyard cp ${V(e.name)}:. FOLDER -r</code></div>`}
</section>`}
</div>`}function Zl({job:e,row:t}){let[n,r]=P(``),i=cr(t),a=Bn(In(e.spec??{})),o=Object.entries(i).filter(([e,t])=>`${e} ${Vn(t)}`.toLowerCase().includes(n.toLowerCase())),s=[[`server`,e.provenance?.server_version],[`worker`,e.provenance?.worker_version],[`data`,e.provenance?.data_digest],[`model`,e.provenance?.model_digest],[`commit`,e.provenance?.code&&`${e.provenance.code.commit??``}${e.provenance.code.is_dirty?` with changes`:``}`],[`branch`,e.provenance?.code?.branch],[`saved spec`,e.provenance?.saved_spec],[`from checkpoint`,e.provenance?.parent_checkpoint],[`imported from`,e.provenance?.imported?.job]].filter(([,e])=>e);return R`<div class="grid-2">
<section class="panel" aria-label="Spec">
<div class="panel-head">
<input
class="input log-search"
type="search"
placeholder="Find a field"
aria-label="Find a field"
value=${n}
onInput=${e=>r(e.target.value)}
/>
<span class="spacer"></span><span class="dim">bold: chosen; others: filled in</span>
<button
type="button"
class="button button-small"
onClick=${()=>er(`job-${t.id}-spec.json`,JSON.stringify(In(t.spec),null,2),`application/json`)}
>
Save as JSON
</button>
</div>
<table class="table config-table">
<tbody>
${o.map(([e,t])=>R`<tr key=${e}>
<th scope="row" class="mono">${e}</th>
<td class=${z(`mono`,e in a?`chosen`:`dim`)}>${Vn(t)}</td>
</tr>`)}
</tbody>
</table>
</section>
<section class="panel" aria-label="Origin">
<div class="panel-head"><h2>Origin</h2></div>
<table class="table config-table">
<tbody>
${s.map(([e,t])=>R`<tr key=${e}>
<th scope="row">${e}</th>
<td class="mono">${t}</td>
</tr>`)}
</tbody>
</table>
</section>
</div>`}function Ql(e,t,{axis:n,begin:r,longest:i}){let a=[],o=(e,t,o)=>{let s=n===`time`?(t-r)/1e3:o??vl(i,t);s!==void 0&&Number.isFinite(s)&&a.push({x:s,kind:e})};for(let{type:t,message:n,time:r}of e)if(t===`CHECKPOINT_COMMITTED`){let e=/step (\d+)/.exec(n??``)?.[1];o(`checkpoint`,Yt(r),e===void 0?void 0:Number(e))}else t===`JOB_SUSPENDED`&&o(`suspension`,Yt(r));for(let n of t)Number(V(n.name))>1&&n.start_time&&o(`restart`,Yt(n.start_time),Number(n.resumed_from_step??0)),n.state===`ATTEMPT_STATE_PREEMPTED`&&!e.some(({type:e})=>e===`JOB_SUSPENDED`)&&o(`preemption`,Yt(n.end_time)),/FAILED|LOST/.test(n.state??``)&&o(`failure`,Yt(n.end_time));return a}var $l={checkpoint:`checkpoint`,restart:`restart`,preemption:`preemption`,suspension:`suspension`,failure:`failure`};function eu({job:e,row:t,events:n,attempts:r}){let i=Er(),a=Or(),o=sn(e.state),[s,c]=P(null);I(()=>{let t=new Cl(e.name,{follow:o});return c(t),()=>t.close()},[e.name,o]);let l=s?.series.value??new Map,u=t.started??t.created,d=Oe(()=>yl([...l.keys()]),[[...l.keys()].join(`|`)]),f=[...l.values()].reduce((e,t)=>t.steps.length>(e?.steps.length??0)?t:e,null),p=Oe(()=>Ql(n,r,{axis:i.axis,begin:u,longest:f}),[n,r,i.axis,u,l]),m=Oe(()=>d.map(e=>({...e,series:e.names.map((e,t)=>tu(e,t,l.get(e),i.axis,u))})),[d,l,i.axis,u]);return s?.error.value?R`<${J} error=${s.error.value} />`:m.length===0?!s||s.isLoading.value?R`<div class="loading">Loading curves</div>`:R`<${Y} title="No metrics yet">${o?`They appear here as soon as the job reports some.`:`This job has reported none.`}</${Y}>`:R`<div class="stack">
<${kr} settings=${i} group=${a}>
<span class="spacer"></span>
<span class="mark-key" aria-label="Marks">${[...new Set(p.map(({kind:e})=>e))].map(e=>R`<span key=${e} class=${`mark mark-${e}`}>${$l[e]}</span>`)}</span>
</${kr}>
<div class="charts">${m.map(({title:e,names:n,series:r,isResult:o})=>R`<${cl}
key=${e}
title=${e}
metric=${n[0]}
series=${r}
settings=${i}
marks=${p}
group=${a}
onZoom=${Dr}
file=${`job-${t.id}`}
isResult=${o}
/>`)}</div>
</div>`}function tu(e,t,n,r,i){return{key:e,label:e,colour:Lr(e.startsWith(`train.`)?0:e.startsWith(`test.`)?1:t),isThinned:n.isThinned,xs:r===`time`?n.times.map(e=>(e-i)/1e3):n.steps,values:n.values}}function nu({job:e,row:t,checkpoints:n}){let r=jt.value,i=e.progress??{},a=n.find(e=>e.is_best),o=[...new Set((e.placement??[]).map(({worker:e})=>V(e)))],s=[[`Owner`,t.user+(t.project?` · ${t.project}`:``)],[`Submitted`,R`<span title=${new Date(t.created).toISOString()}>${Xt(t.created,r)}</span>`],t.started!==void 0&&[`Ran for`,qt(lr(t,r))],t.ended!==void 0&&[`Ended`,R`<${Zn} ms=${t.ended} />`],[`Devices`,`${t.devices}${e.resolved_spec?.devices?.type?` × ${e.resolved_spec.devices.type}`:``}${o.length?` on ${o.slice(0,3).join(`, `)}${o.length>3?`…`:``}`:``}`],sn(e.state)&&i.samples_per_s&&[`Speed`,`${B(i.samples_per_s)} samples/s`],e.attempt>1&&[`Attempt`,`${e.attempt}${e.retries?` (${H(e.retries,`retry`,`retries`)})`:``}`],e.preemptions>0&&[`Preempted`,H(e.preemptions,`time`)],e.device_time&&[`Device time`,qt(Jt(e.device_time))],i.checkpoint_step&&[`Checkpoint`,`step ${B(i.checkpoint_step)}${a?`, best at ${B(a.step)}`:``}`],e.provenance?.cloned_from&&[`Cloned from`,R`<${K} href=${`/${e.provenance.cloned_from}`}>${V(e.provenance.cloned_from)}</${K}>`],e.provenance?.verifies&&[`Verifies`,R`<${K} href=${`/${e.provenance.verifies}`}>${V(e.provenance.verifies)}</${K}>`],e.begin_time&&e.state===`JOB_STATE_QUEUED`&&[`Not before`,R`<${Zn} ms=${Yt(e.begin_time)} />`]].filter(Boolean),c=Object.entries(e.final_metrics??{}).sort(([e],[t])=>ru(e)-ru(t)||e.localeCompare(t));return R`<section class="panel panel-body facts-panel" aria-label="Facts">
${t.totalSteps>0&&e.state!==`JOB_STATE_SUCCEEDED`&&R`<div class="facts-progress">
<span class="num"
>step ${B(t.step)} of ${B(t.totalSteps)}${i.epochs?` · epoch ${B(Number(i.epoch??0)+1)} of ${B(i.epochs)}`:``}</span
>
<${Yn} row=${t} large />
</div>`}
<dl class="facts">
${c.slice(0,6).map(([e,t])=>R`<div key=${e} class="fact-result">
<dt>${e}</dt>
<dd>${$t(e,t)}</dd>
</div>`)}
${s.map(([e,t])=>R`<div key=${e}>
<dt>${e}</dt>
<dd>${t}</dd>
</div>`)}
</dl>
${i.disk_full&&R`<p class="warn">The disk of its worker is full: ${i.disk_full}</p>`}
${i.fallbacks>0&&R`<p class="warn">
${H(i.fallbacks,`operation`)} run on slower kernels: ${i.first_fallback}
</p>`}
${(e.deleted_parts??[]).length>0&&R`<p class="dim">
Deleted for good: ${e.deleted_parts.map(e=>e.replace(`JOB_PART_`,``).toLowerCase()).join(`, `)}.
</p>`}
</section>`}var ru=e=>+!e.startsWith(`test.`);function iu(e){let t=atob(e),n=new Uint8Array(t.length);for(let e=0;e<t.length;++e)n[e]=t.charCodeAt(e);return n}var au=16384,ou=class{#e=new Uint8Array;#t=0;#n={};#r=new TextDecoder(`utf-8`);add(e,t){e!==this.#t+this.#e.length&&(this.#e=new Uint8Array,this.#t=e);let n=new Uint8Array(this.#e.length+t.length);n.set(this.#e),n.set(t,this.#e.length);let r=[],i=0;for(let e=0;e<n.length;++e){if(n[e]!==10&&e-i<au)continue;let t=n[e]===10?e:e+1;r.push(this.#i(this.#t+i,n.subarray(i,t),!0)),i=e+1}return this.#e=n.slice(i),this.#t+=i,r}rest(){return this.#e.length===0?null:this.#i(this.#t,this.#e,!1)}#i(e,t,n){let{pieces:r,style:i}=Rl(Bl(this.#r.decode(t)),this.#n);return n&&(this.#n=i),{offset:e,pieces:r,text:r.map(({text:e})=>e).join(``)}}};function su({pieces:e,find:t}){return e.map(({text:e,classes:n},r)=>R`<span key=${r} class=${n||void 0}>${t?cu(e,t):e}</span>`)}function cu(e,t){let n=[],r=e.toLowerCase(),i=0;for(let a=r.indexOf(t);a>=0;a=r.indexOf(t,i))n.push(e.slice(i,a),R`<mark key=${a}>${e.slice(a,a+t.length)}</mark>`),i=a+t.length;return n.push(e.slice(i)),n}function lu({name:e,attempt:t,rank:n}){let[r,i]=P(null);return I(()=>{let r=new ou,a=[],o=!0;return hl(`JobService/TailLogs`,{name:`${e}/attempts/${t}`,rank:n,offset:-8192},{onMessage:({offset:e,data:t})=>{a.push(...r.add(Number(e??0),iu(t??``))),o&&Number(e??0)>0&&a.shift(),o=!1},onEnd:()=>{let e=r.rest();a=e?[...a,e]:a,i(a.slice(-20))},onError:()=>i([])})},[e,t,n]),r===null?R`<div class="log-lines dim">…</div>`:r.length===0?R`<div class="log-lines dim">This rank has written nothing.</div>`:R`<div class="log-lines" tabindex="0" role="region" aria-label="Last lines of the log">
${r.map(e=>R`<div class="log-line" key=${e.offset}><${su} pieces=${e.pieces} /></div>`)}
</div>`}var uu={USER_ERROR:`The spec, the data or the program is at fault; it is not tried again.`,TRANSIENT:`This may pass; it is tried again a few times.`,HARDWARE:`A device is at fault; it is tried again elsewhere.`,LOST:`The worker went out of contact; nobody knows what became of it.`,POISON:`It failed in the same way on two workers, and waits for a person to resume or cancel it.`};function du({job:e}){let{failure:t}=e,n=Math.max(1,e.placement?.length??1),r=Number(/\brank (\d+)\b/.exec(t?.message??``)?.[1]??0),[i,a]=P(r<n?r:0);if(!t)return null;let o=e.state===`JOB_STATE_FAILED`,s=an(t.failure_class,`FAILURE_CLASS_`).toUpperCase().replaceAll(` `,`_`),c=e.placement?.[i];return R`<section class="panel failure" aria-label="Failure">
<div class="failure-head">
<h2>${o?`Failed`:e.state===`JOB_STATE_SUSPENDED`?`Held after a failure`:`Failed before`}
${t.reason&&R`<code class="failure-reason">${t.reason}</code>`}</h2>
<p class="failure-message">${Gl(t.message??``)}</p>
<p class="dim">${[ln(t.exit_code),c&&`rank ${i} on ${c.worker.split(`/`)[1]}${c.device?`, ${c.device}`:``}`].filter(Boolean).join(` · `)}${uu[s]&&` · ${uu[s]}`}</p>
</div>
<div class="failure-log">
<div class="failure-log-head"><h3>Last lines of rank ${i}</h3>
${n>1&&R`<label class="control"
>Rank
<select class="select" value=${i} onChange=${e=>a(Number(e.target.value))}>
${Array.from({length:Math.min(n,256)},(e,t)=>R`<option key=${t} value=${t}>${t}</option>`)}
</select></label
>`}
<span class="spacer"></span>
<${K} href=${fn({tab:`logs`,rank:String(i)})}>Whole log</${K}></div>
<${lu} name=${e.name} attempt=${e.attempt} rank=${i} key=${`${e.attempt}/${i}`} />
</div>
</section>`}function fu(e){let[t,n]=P({job:null,error:null,isDeleted:!1});I(()=>hl(`JobService/WatchJobs`,{names:[e]},{onMessage:({job:e,deleted:t})=>n(n=>t?{...n,isDeleted:!0}:{job:e,error:null,isDeleted:!1}),onError:e=>n(t=>({...t,error:e}))}),[e]);let r=e=>n(t=>({...t,job:e}));return{...t,show:r}}var pu={LINEAGE_KIND_CLONE:`clone`,LINEAGE_KIND_FROM:`continues`,LINEAGE_KIND_INIT:`weights of`,LINEAGE_KIND_VERIFICATION:`verification`,LINEAGE_KIND_SAVED_SPEC:`saved spec`,LINEAGE_KIND_IMPORT:`import`,LINEAGE_KIND_SWEEP:`trial`};function mu(e){let t=new Map(e.map(e=>[e.name,{...e,kinds:[],children:[]}])),n=[];for(let e of[...t.values()]){let r=e.links??[];e.kinds=[...new Set(r.map(({kind:e,step:t})=>`${pu[e]??`from`}${Number(t??0)>0?` from step ${t}`:``}`))];let i=r[0]?.parent;if(!i||hu(t,i,e))n.push(e);else{if(!t.has(i)){let e={name:i,kinds:[],children:[]};t.set(i,e),n.push(e)}t.get(i).children.push(e)}}return n}function hu(e,t,n){if(t===n.name)return!0;let r=e.get(t),i=new Set,a=e=>!i.has(e)&&(i.add(e),e===r||e.children.some(a));return r!==void 0&&a(n)}function gu({job:e}){let{data:t,error:n}=q(`JobService/GetLineage`,{name:e.name},{key:e.state}),r=q(`JobService/ListVerifications`,{name:e.name},{key:e.state,isOff:!e.verified}),i=mu(t?.nodes??[]);return R`<div class="stack">
<section class="panel" aria-label="Lineage">
<div class="panel-head">
<h2>Lineage</h2>
${t?.is_cut&&R`<span class="dim">the nearest jobs only</span>`}
</div>
<${J} error=${n} />
<ul class="tree panel-body">
${i.map(t=>R`<${vu} key=${t.name} node=${t} here=${e.name} />`)}
</ul>
</section>
${(r.data?.verifications??[]).length>0&&R`<section class="panel scroll-x" aria-label="Verifications">
<div class="panel-head"><h2>Run again</h2></div>
<table class="table">
<thead>
<tr>
<th scope="col">Job</th>
<th scope="col">Result</th>
<th scope="col">When</th>
<th scope="col">On</th>
<th scope="col">Because</th>
</tr>
</thead>
<tbody>
${r.data.verifications.map(e=>R`<tr key=${e.job}>
<td><${K} href=${`/${e.job}`}>${V(e.job)}</${K}></td>
<td><${_u} result=${e.result} /></td><td class="nowrap"><${Zn} ms=${Yt(e.time)} /></td>
<td>${e.devices}</td><td>${(e.reasons??[]).map(e=>R`<p key=${e}>${e}</p>`)}</td></tr>`)}
</tbody>
</table>
</section>`}
</div>`}function _u({result:e}){let t=an(e,`VERIFICATION_RESULT_`);return R`<span
class=${z(`state`,/identical|equivalent/.test(t)?`state-succeeded`:t===`pending`?`state-queued`:`state-failed`)}
>${t}</span
>`}function vu({node:e,here:t}){let n=Object.entries(e.final_metrics??{}).filter(([e])=>e.startsWith(`test.`)).sort(([e],[t])=>e.localeCompare(t))[0];return R`<li>
<div class=${z(`tree-node`,e.name===t&&`tree-here`)}>
${e.kinds.map(e=>R`<span class="tag" key=${e}>${e}</span>`)}
${e.name.startsWith(`jobs/`)?R`<${K} href=${mn(e.name)}>${V(e.name)} ${e.title??`(deleted)`}</${K}>`:R`<span>${e.name}</span>`}
${e.state&&R`<${Jn} state=${e.state} />`}
<span class="dim">${e.user}</span>
${n&&R`<span class="num">${n[0]} ${$t(n[0],n[1])}</span>`}
<${Xn} verified=${e.verified} />
</div>
${e.children.length>0&&R`<ul>
${e.children.map(e=>R`<${vu} key=${e.name} node=${e} here=${t} />`)}
</ul>`}
</li>`}var yu=2e5,bu=class{shown=L({lines:[],version:0});isOver=L(!1);isLoading=L(!0);isCut=L(!1);error=L(null);#e=[];#t=new Map;#n=new Map;#r=null;#i;constructor({name:e,rank:t,isWhole:n,follow:r}){let i={name:e,follow:r};t!==void 0&&(i.rank=t),n||(i.offset=-524288),this.#i=hl(`JobService/TailLogs`,i,{onMessage:e=>this.#a(e),onEnd:()=>{this.isOver.value=!0,this.#o()},onError:e=>{this.error.value=e,this.isLoading.value=!1}})}close(){this.#i(),clearTimeout(this.#r)}#a({attempt:e,rank:t=0,offset:n=`0`,data:r=``}){let i=`${e}/${t}`,a=this.#t.get(i),o=!a;o&&this.#t.set(i,a=new ou);let s=a.add(Number(n),iu(r));o&&Number(n)>0&&(s.shift(),this.isCut.value=!0);for(let e of s)this.#e.push({...e,rank:t,key:`${i}/${e.offset}`});let c=a.rest();c?this.#n.set(i,{...c,rank:t,key:`${i}/${c.offset}`}):this.#n.delete(i),this.#e.length>2e5&&(this.#e.splice(0,this.#e.length-yu),this.isCut.value=!0),this.#r||=setTimeout(()=>this.#o(),120)}#o(){clearTimeout(this.#r),this.#r=null,this.isLoading.value=!1;let e=[...this.#n.values()];this.shown.value={lines:e.length>0?[...this.#e,...e]:this.#e.slice(),version:this.shown.peek().version+1}}},xu=18;function Su({job:e,attempts:t}){let n=Number(W(`attempt`))||e.attempt||0,r=t.find(({name:e})=>Number(V(e))===n)?.placement?.length??e.placement?.length??1,i=W(`rank`),a=W(`from`)===`start`||W(`at`)!==``,o=sn(e.state)&&n===e.attempt,[s,c]=P(null);if(I(()=>{if(n===0)return;let t=new bu({name:`${e.name}/attempts/${n}`,rank:i===``?void 0:Number(i),isWhole:a,follow:o});return c(t),()=>t.close()},[e.name,n,i,a]),n===0)return R`<div class="panel panel-body dim">Its first attempt has not begun, so there is no log.</div>`;let l=e=>t=>G({[e]:t.target.value,at:``});return R`<section class="panel log-panel" aria-label="Logs">
<div class="panel-head">
${t.length>1&&R`<label class="control"
>Attempt
<select class="select" value=${String(n)} onChange=${l(`attempt`)}>
${t.map(({name:e})=>R`<option key=${e} value=${V(e)}>${V(e)}</option>`)}
</select></label
>`}
${r>1&&R`<label class="control"
>Rank
<select class="select" value=${i} onChange=${l(`rank`)}>
<option value="">all ${r}</option>
${Array.from({length:r},(e,t)=>R`<option key=${t} value=${String(t)}>${t}</option>`)}
</select></label
>`}
${s&&R`<${Cu}
key=${`${n}/${i}/${a}`}
store=${s}
isLive=${o}
hasRanks=${r>1&&i===``}
file=${`job-${V(e.name)}-attempt-${n}${i&&`-rank-${i}`}`}
/>`}
</div>
</section>`}function Cu({store:e,isLive:t,hasRanks:n,file:r}){let{lines:i,version:a}=e.shown.value,o=W(`find`).toLowerCase(),s=W(`at`),[c,l]=P(W(`find`)),[u,d]=P(s===``),[f,p]=P(0),m=De(null),h=De(null),{from:g,to:_}=Gn(m,i.length,xu),v=Oe(()=>{if(!o)return[];let e=[];return i.forEach((t,n)=>t.text.toLowerCase().includes(o)&&e.push(n)),e},[o,a]),y=Math.min(f,Math.max(0,v.length-1)),b=Oe(()=>s===``?-1:i.findIndex(({key:e})=>e===s),[s,a]);Ee(()=>{u&&m.current&&(m.current.scrollTop=m.current.scrollHeight)},[u,a]),I(()=>{b>=0&&Kn(m.current,b+6,xu)},[b]),I(()=>{let e=setTimeout(()=>{c!==W(`find`)&&(G({find:c}),p(0))},200);return()=>clearTimeout(e)},[c]);let x=e=>{if(v.length===0)return;let t=(y+e+v.length)%v.length;p(t),d(!1),Kn(m.current,v[t]+4,xu),Kn(m.current,Math.max(0,v[t]-4),xu)};return Ut([{key:`/`,does:`search the log`,action:()=>h.current?.focus()},{key:`n`,does:`next hit`,action:()=>x(1)},{key:`N`,does:`hit before`,action:()=>x(-1)},{key:`f`,does:`follow the end`,action:()=>d(!0)}]),R` <input
ref=${h}
class="input log-search"
type="search"
placeholder="Search"
aria-label="Search the log"
value=${c}
onInput=${e=>l(e.target.value)}
onKeyDown=${e=>e.key===`Enter`&&x(e.shiftKey?-1:1)}
/>
${o&&R`<span class="num dim" aria-live="polite"
>${v.length===0?`no hit`:`${y+1} of ${B(v.length)}`}</span
>
<button type="button" class="button button-small" onClick=${()=>x(-1)} aria-label="Hit before">↑</button>
<button type="button" class="button button-small" onClick=${()=>x(1)} aria-label="Next hit">↓</button>`}
<span class="spacer"></span>
<span class="dim num">${B(i.length)} lines${t&&!e.isOver.value?`, live`:``}</span>
<label class="check"
><input
type="checkbox"
checked=${u}
onChange=${e=>{d(e.target.checked),e.target.checked&&s&&G({at:``})}}
/>
Follow</label
>
<button
type="button"
class="button button-small"
onClick=${()=>er(`${r}.log`,i.map(e=>e.text).join(`
`)+`
`,`text/plain`)}
>
Save
</button>
<div class="log-box">
<${J} error=${e.error.value} />
${e.isCut.value&&R`<p class="log-cut">
The beginning is left out. ${` `}<button
type="button"
class="link"
onClick=${()=>G({from:`start`})}
>
Load the whole log
</button>
</p>`}
<div
class="log-scroll"
ref=${m}
onScroll=${({currentTarget:e})=>{let t=e.scrollTop+e.clientHeight>=e.scrollHeight-4;t!==u&&s===``&&d(t)}}
tabindex="0"
role="log"
aria-label="Lines of the log"
aria-live="off"
>
${i.length===0&&R`<p class="dim log-nothing">${e.isLoading.value?`Loading`:`Nothing was written.`}</p>`}
<div style=${{height:`${i.length*xu}px`,position:`relative`}}>
<div style=${{transform:`translateY(${g*xu}px)`}}>
${i.slice(g,_).map((t,r)=>{let i=o&&v[y]===g+r;return R`<div
key=${t.key}
class=${z(`log-line`,t.key===s&&`log-marked`,i&&`log-hit`)}
>
<a
class="log-number num"
href=${fn({at:t.key})}
title="Link to this line"
onClick=${e=>{e.metaKey||e.ctrlKey||e.shiftKey||(e.preventDefault(),d(!1),G({at:t.key}))}}
>${e.isCut.value?`·`:g+r+1}</a
>
${n&&R`<span class=${`log-rank log-rank-${t.rank%6}`}>${t.rank}</span>`}
<span class="log-text"><${su} pieces=${t.pieces} find=${o} /></span>
</div>`})}
</div>
</div>
</div>
</div>`}function wu({job:e,row:t,onChange:n}){let[r,i]=P(null),[a,o]=P(``),[s,c]=P(null),l=Mn(t.user),u=e.added_tags??[],d=async t=>{c(null);try{return n(await bn(`JobService/AnnotateJob`,{name:e.name,...t})),!0}catch(e){return c(e),!1}},f=async e=>{e.preventDefault(),await d({note:r})&&i(null)},p=async e=>{e.preventDefault(),a.trim()&&await d({add_tags:a.trim().split(/[\s,]+/)})&&o(``)},m=e.resolved_spec?.description;return R`<section class="notes" aria-label="Note and tags">
${m&&R`<p class="description">${m}</p>`}
<div class="notes-row">
${(e.resolved_spec?.tags??[]).map(e=>R`<span class="tag tag-large" key=${`s${e}`} title="of the spec">${e}</span>`)}
${u.map(e=>R`<span class="tag tag-large" key=${e}
>${e}${l&&R`<button
type="button"
class="tag-remove"
aria-label=${`Remove the tag ${e}`}
onClick=${()=>d({remove_tags:[e]})}
>
×
</button>`}</span
>`)}
${l&&R`<form onSubmit=${p}>
<input
class="input input-tag"
placeholder="Add a tag"
aria-label="Add a tag"
maxlength="200"
value=${a}
onInput=${e=>o(e.target.value)}
/>
</form>`}
${r===null&&!e.note&&l&&R`<button type="button" class="button button-quiet button-small" onClick=${()=>i(``)}>
Write a note
</button>`}
</div>
${r===null?e.note&&R`<div class="note">
<p class="note-text">${e.note}</p>
${l&&R`<button type="button" class="button button-quiet button-small" onClick=${()=>i(e.note)}>
Edit
</button>`}
</div>`:R`<form class="note-form" onSubmit=${f}>
<textarea
class="input"
rows="3"
maxlength="4096"
aria-label="Note"
value=${r}
autofocus
onInput=${e=>i(e.target.value)}
></textarea>
<span
><button class="button button-primary button-small">Save the note</button>
<button type="button" class="button button-quiet button-small" onClick=${()=>i(null)}>
Go back
</button></span
>
</form>`}
<${J} error=${s} />
</section>`}function Tu({job:e,etag:t}){let n=e.state===`JOB_STATE_QUEUED`,{data:r}=q(`JobService/ExplainJob`,{name:e.name},{key:t,everyMs:8e3,isOff:!n});if(!n)return null;let i=r?.reasons?.length?r.reasons:e.queue_reasons??[],a=Yt(r?.start_time);return R`<section class="panel waiting" aria-label="Why it waits">
<div class="panel-body">
<h2>Waits${Number(r?.position??0)>0?`, number ${B(r.position)} in the queue`:``}</h2>
<ul class="reasons">
${i.map(e=>R`<li key=${e}>${e}</li>`)}
</ul>
${a!==void 0&&R`<p>
Expected to start in ${qt((a-jt.value)/1e3)}, at ${` `}
<${Zn} ms=${a} />${r.start_basis?`: ${r.start_basis}`:``}.
</p>`}
${a===void 0&&r?.start_basis&&R`<p class="dim">No start can be foretold: ${r.start_basis}.</p>`}
${r?.change_text&&R`<p>
Would start now with a change: ${r.change_text}.
${` `}${jn()&&r.change?.length>0&&R`<${K} href=${Eu(e,r.change)}>Clone with it</${K}>`}
</p>`}
</div>
</section>`}function Eu(e,t){let n=new URLSearchParams;for(let{path:e,value_json:r}of t)n.append(`set`,`${e}=${r??``}`);return`/jobs/${e.name.split(`/`)[1]}/clone?${n}`}var Du=[[``,`Curves`,eu],[`logs`,`Logs`,Su],[`config`,`Config`,Zl],[`checkpoints`,`Files`,Xl],[`attempts`,`History`,ql],[`lineage`,`Lineage`,gu]];function Ou({id:e}){let t=`jobs/${e}`,{job:n,error:r,isDeleted:i,show:a}=fu(t),o=Nn(n?.etag??``,2e3),s=q(`JobService/ListAttempts`,{parent:t},{key:o,isOff:!n}),c=q(`CheckpointService/ListCheckpoints`,{parent:t},{key:o,isOff:!n}),l=q(`JobService/ListEvents`,{parent:t,page_size:1e3},{key:o,isOff:!n}),u=Oe(()=>n?or(n):null,[n]),d=W(`tab`),f=e=>U(fn({tab:e,at:``,rank:``,find:``}));if(Ut([...Du.map(([e,t],n)=>({key:String(n+1),does:`show ${t.toLowerCase()}`,action:()=>f(e)})),{key:`e`,does:`clone with changes`,action:()=>jn()&&U(`/jobs/${e}/clone`)},{key:`c`,does:`compare with others`,action:()=>U(`/compare?jobs=${e}`)},{key:`u`,does:`back to all runs`,action:()=>U(`/`)}]),!n)return R`<main class="view" id="main">
${r?R`<${Y} title=${`jobs/${e} cannot be shown`}>${xn(r)}</${Y}>`:R`<div class="loading">Loading jobs/${e}</div>`}
</main>`;let[,,p]=Du.find(([e])=>e===d)??Du[0],m={job:n,row:u,attempts:s.data?.attempts??[],checkpoints:c.data?.checkpoints??[],events:l.data?.events??[]};return R`<main class="view" id="main">
<p class="crumbs"><${K} href="/">Runs</${K}> / ${e}${u.sweep!==void 0&&R` / trial of <${K} href=${`/sweeps/${u.sweep}`}>sweep ${u.sweep}</${K}>`}</p>
<div class="view-head">
<h1>${u.title}</h1>
<${Jn} state=${n.state} large />
<${Xn} verified=${n.verified} />
<span class="spacer"></span>
<${Il} job=${n} row=${u} />
</div>
${i&&R`<div class="error-box" role="alert">This job was deleted.</div>`}
<div class="stack">
<${du} job=${n} />
<${Tu} job=${n} etag=${o} />
<${nu} ...${m} />
<${wu} job=${n} row=${u} onChange=${a} />
<div class="tabs" role="tablist" aria-label="Parts of the job">
${Du.map(([e,t])=>R`<button
type="button"
role="tab"
key=${e}
id=${`tab-${e}`}
aria-selected=${e===d}
aria-controls="tab-panel"
class=${z(`tab`,e===d&&`tab-here`)}
onClick=${()=>f(e)}
>
${t}
</button>`)}
</div>
<div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${d}`} key=${d}><${p} ...${m} /></div>
</div>
</main>`}var ku=3e3;function Au(){let{data:e,error:t}=q(`FleetService/ListWorkers`,{},{everyMs:ku}),n=q(`JobService/ListJobs`,{page_size:1e3,states:[`JOB_STATE_RUNNING`,`JOB_STATE_STARTING`,`JOB_STATE_STOPPING`]},{everyMs:ku}),r=e?.workers??[],i=Oe(()=>new Map((n.data?.jobs??[]).map(e=>[e.name,e])),[n.data]),a=e=>e.attempt?.split(`/attempts/`)[0],o=W(`by`)===`job`?`job`:`user`,s=e=>o===`job`?a(e):i.get(a(e))?.user??`unknown`,c=new Map,l=0,u=0;for(let e of r)for(let t of e.devices??[])u+=1,t.attempt?c.set(s(t),(c.get(s(t))??0)+1):l+=+!!ju(e,t);let d=[...c].sort((e,t)=>t[1]-e[1]||String(e[0]).localeCompare(String(t[0]))),f=new Map(d.map(([e],t)=>[e,Lr(t)]));return R`<main class="view" id="main">
<div class="view-head">
<h1>Devices</h1>
${e&&R`<span
class="dim">${B(u-l)} of ${B(u)} in use or set aside, ${B(l)} free</span>`}
<span class="spacer"></span>
<div class="chips" role="group" aria-label="Colours">
${[`user`,`job`].map(e=>R`<button
type="button"
key=${e}
class=${z(`chip`,o===e&&`chip-on`)}
aria-pressed=${o===e}
onClick=${()=>G({by:e===`user`?``:e})}
>
By ${e}
</button>`)}
</div>
</div>
${t&&!e&&R`<${Y} title="The devices cannot be shown">${xn(t)}</${Y}>`}
${e&&r.length===0&&R`<${Y} title="No workers">Start one with <code>trainyard up</code>, or on another host.</${Y}>`}
<div class="stack">
${d.length>0&&R`<ul class="owners" aria-label="In use by">
${d.map(([e,t])=>R`<li key=${e}>
<span
class="owner-dot"
style=${{background:`var(${f.get(e)})`}}
aria-hidden="true"
></span>
${o===`job`?R`<${K}
href=${mn(e)}>${V(e)} ${i.get(e)?.resolved_spec?.name??``}</${K}>`:e}
<span class="dim num">${t}</span>
</li>`)}
</ul>`}
<div class="workers">
${r.map(e=>R`<${Nu}
key=${e.name}
worker=${e}
jobs=${i}
jobOf=${a}
colourOf=${e=>f.get(s(e))}
/>`)}
</div>
</div>
</main>`}var ju=(e,t)=>e.state===`WORKER_STATE_ACTIVE`&&(e.scheduling??`WORKER_SCHEDULING_ELIGIBLE`)===`WORKER_SCHEDULING_ELIGIBLE`&&!t.quarantine&&(t.health??`DEVICE_HEALTH_OK`)===`DEVICE_HEALTH_OK`,Mu=e=>`${B(e.cpus_held??0)} of ${B(e.cpus)} cpus · ${rn(e.memory_bytes_held??0)} of ${rn(e.memory_bytes)}`;function Nu({worker:e,jobs:t,jobOf:n,colourOf:r}){let i=an(e.state,`WORKER_STATE_`),a=an(e.scheduling,`WORKER_SCHEDULING_`),{host:o}=e;return R`<section class="panel worker" aria-label=${`Worker ${V(e.name)}`}>
<div class="panel-head">
<h2>${V(e.name)}</h2>
${i!==`active`&&R`<span class="state state-failed">${i}, seen ${Xt(Yt(e.last_seen_time),jt.value)}</span>`}
${a!==`eligible`&&R`<span class="state state-queued">${a}</span>`}
<span class="spacer"></span>
${o&&R`<span
class="dim num">${Mu(o)}</span>`}
${Object.entries(e.labels??{}).map(([e,t])=>R`<span class="tag" key=${e}>${e}=${t}</span>`)}
</div>
<ul class="devices">
${(e.devices??[]).map(i=>R`<${Pu}
key=${i.name}
device=${i}
isUsable=${ju(e,i)}
job=${t.get(n(i))}
jobName=${n(i)}
colour=${r(i)}
/>`)}
</ul>
</section>`}function Pu({device:e,isUsable:t,job:n,jobName:r,colour:i}){let{usage:a}=e,o=e.quarantine||e.health_reason,s=e.name.length>14?`${e.name.slice(0,4)}…${e.name.slice(-6)}`:e.name;return R`<li
class=${z(`device`,r?`device-held`:t?`device-free`:`device-aside`)}
title=${`${e.product||e.type}, ${rn(e.memory_bytes??0)}${o?`: ${o}`:``}`}
>
${r&&R`<span class="device-bar" style=${{background:`var(${i??`--dim`})`}} aria-hidden="true"></span>`}
<span class="device-name">${s}<span class="dim"> ${e.type}</span></span>
${r?R`<${K} class="device-job"
href=${mn(r)}>${V(r)} ${n?.resolved_spec?.name??``}</${K}>
<span class="dim">${n?.user??``}</span>`:R`<span class="dim">${t?`free`:o?`set aside`:`not used`}</span>`}
${o&&R`<span class="device-why">${o}</span>`}
${a&&R`<span class="dim num device-usage"
>${[a.utilization!==void 0&&`${Math.round(a.utilization*100)}%`,a.memory_bytes!==void 0&&rn(a.memory_bytes),a.temperature_celsius!==void 0&&`${Math.round(a.temperature_celsius)} °C`,a.power_watts!==void 0&&`${Math.round(a.power_watts)} W`].filter(Boolean).join(` · `)}${a.slowed_by?` · slowed by ${a.slowed_by}`:``}</span
>`}
</li>`}var Fu=200,Iu=25,Lu=3,Ru=4e3;function zu(){let{data:e,error:t}=q(`JobService/ListQueue`,{page_size:Fu},{everyMs:Ru}),n=e?.jobs??[],r=Vu(n.slice(0,Iu)),i=Number(e?.queued_jobs??0);return R`<main class="view" id="main">
<div class="view-head"><h1>Queue</h1>${e&&R`<span class="dim">${H(i,`job waits`,`jobs wait`)}</span>`}
<span class="spacer"></span><${K} class="button" href="/devices">Devices</${K}></div>
${t&&!e&&R`<${Y} title="The queue cannot be shown">${xn(t)}</${Y}>`}
${e&&n.length===0&&R`<${Y} title="Nothing waits">Every job that was submitted has its devices.</${Y}>`}
${n.length>0&&R`<section class="panel scroll-x" aria-label="Queue">
<table class="table queue-table">
<thead>
<tr>
<th scope="col" class="right">Place</th>
<th scope="col">Job</th>
<th scope="col">Owner</th>
<th scope="col" class="right">Devices</th>
<th scope="col" class="right">Priority</th>
<th scope="col">Waits because</th>
<th scope="col">Expected start</th>
<th scope="col" class="right">Waits for</th>
</tr>
</thead>
<tbody>
${n.map((e,t)=>R`<${Bu} key=${e.name} job=${e} index=${t} explanation=${r[e.name]} />`)}
</tbody>
</table>
${i>n.length&&R`<p class="panel-body dim">and ${B(i-n.length)} more</p>`}
</section>`}
</main>`}function Bu({job:e,index:t,explanation:n}){let r=or(e),i=Yt(n?.start_time),a=n?.reasons?.length?n.reasons:e.queue_reasons??[];return R`<tr><td class="right">${n?.position?B(n.position):t+1}</td>
<td class="nowrap"><${K} href=${mn(e.name)}>${r.id} ${r.title}</${K}></td>
<td>${r.user}${r.project&&R`<span class="dim"> ${r.project}</span>`}</td>
<td class="right">${r.devices}</td><td class="right">${r.priority}</td>
<td>${a.length===0?R`<span class="dim">about to start</span>`:a.map(e=>R`<p key=${e}>${e}</p>`)}
${n?.infeasible&&R`<p class="worse">The pool can never hold it.</p>`}
${n?.change_text&&R`<p class="dim">
Would start now: ${n.change_text}${jn()&&n.change?.length>0&&R` · <${K} href=${Eu(e,n.change)}>clone with it</${K}>`}
</p>`}</td>
<td>${i===void 0?e.begin_time?R`not before <${Zn} ms=${Yt(e.begin_time)} />`:R`<span class="dim">${n?.start_basis??`–`}</span>`:R`<span title=${new Date(i).toISOString()}>in ${qt((i-jt.value)/1e3)}</span>
<p class="dim">${n.start_basis}</p>`}</td>
<td class="right nowrap">${Xt(r.created,jt.value).replace(` ago`,``)}</td></tr>`}function Vu(e){let[t,n]=P({});return I(()=>{let t=new AbortController;return Sn(e,Lu,async({name:e})=>{try{let r=await bn(`JobService/ExplainJob`,{name:e},{signal:t.signal});t.signal.aborted||n(t=>({...t,[e]:r}))}catch{}}),()=>t.abort()},[e.map(({name:e,etag:t})=>`${e}@${t}`).join()]),t}var Hu=2e3,Uu=3,Wu=new Map,Gu=[],Ku=0,qu=(e,t)=>`${e.uid}/${t}`;function Ju(e,t){let n=qu(e,t);return Wu.has(n)||Wu.set(n,{etag:void 0,best:L(void 0)}),Wu.get(n)}function Yu(e,t){let n=Ju(e,t);n.etag!==e.etag&&(n.etag=e.etag,Gu.push({row:e,name:t,entry:n}),Xu())}async function Xu(){if(Ku>=Uu)return;let e=Gu.pop();if(e){Ku+=1;try{let t=((await bn(`JobService/QueryMetrics`,{name:e.row.name,metrics:[e.name],max_points:Hu,sampling:`METRIC_SAMPLING_EXTREMES`})).series?.[0]?.points??[]).map(({value:e})=>Qt(e)).filter(Number.isFinite),n=tn(e.name)===`more`?Math.max:Math.min;e.entry.best.value=t.length===0?null:t.reduce((e,t)=>n(e,t))}catch{e.entry.etag=void 0}finally{--Ku,Xu()}}}function Zu({row:e,metric:t}){let n=Ju(e,t).best.value,r=e.metrics[t]!==void 0;return I(()=>{r&&Yu(e,t)},[e.uid,e.etag,t,r]),!r||n===null?``:n===void 0?R`<span class="dim">…</span>`:$t(t,n)}Zu.valueOf=(e,t)=>Wu.get(qu(e,t))?.best.value??void 0;var Qu=[`RUNNING`,`STARTING`,`STOPPING`,`QUEUED`,`SUSPENDED`,`FAILED`,`SUCCEEDED`,`CANCELLED`],$u={id:{title:`#`,width:68,right:!0,value:e=>e.id,order:`id`,cell:e=>String(e.id)},state:{title:`State`,width:104,value:e=>Qu.indexOf(e.state?.replace(`JOB_STATE_`,``)),order:`state`,cell:e=>R`<${Jn} state=${e.state} />`,text:e=>e.state?.replace(`JOB_STATE_`,``).toLowerCase()},name:{title:`Name`,width:230,grow:!0,value:e=>e.title,order:`name`,cell:e=>R`
<${K} class="row-link" href=${mn(e.name)} title=${e.title}>${e.title||e.name}</${K}>
${e.verified&&R`<${Xn} verified=${e.verified} />`}
${e.tags.slice(0,3).map(e=>R`<span class="tag" key=${e}>${e}</span>`)}`,text:e=>e.title},user:{title:`User`,width:84,value:e=>e.user,order:`user`},project:{title:`Project`,width:90,value:e=>e.project,order:`project`},model:{title:`Model`,width:86,value:e=>e.model,order:`model`},dataset:{title:`Data set`,width:100,value:e=>e.dataset,order:`dataset`},devices:{title:`Devices`,width:72,right:!0,value:e=>e.devices,order:`devices`},attempts:{title:`Attempts`,width:78,right:!0,value:e=>e.attempt,order:`attempts`},priority:{title:`Priority`,width:72,right:!0,value:e=>e.priority},sweep:{title:`Sweep`,width:66,right:!0,value:e=>e.sweep??NaN,order:`sweep`,cell:e=>e.sweep!==void 0&&R`<${K} class="cell-link" href=${`/sweeps/${e.sweep}`}>${e.sweep}</${K}>`,text:e=>e.sweep},progress:{title:`Progress`,width:132,value:e=>e.totalSteps?e.step/e.totalSteps:NaN,cell:e=>R`<${Yn} row=${e} />`,text:e=>e.totalSteps?`${e.step}/${e.totalSteps}`:``},eta:{title:`Left`,width:84,right:!0,value:e=>sn(e.state)?e.eta??NaN:NaN,cell:e=>sn(e.state)&&e.eta!==void 0?qt(e.eta):``},took:{title:`Ran for`,width:88,right:!0,order:`duration`,value:(e,t)=>lr(e,t)??NaN,cell:(e,t)=>qt(lr(e,t))},device_time:{title:`Device time`,width:92,right:!0,value:e=>e.deviceTime??NaN,cell:e=>qt(e.deviceTime)},created:{title:`Submitted`,width:102,right:!0,value:e=>e.created??NaN,order:`created`,cell:(e,t)=>Xt(e.created,t),text:e=>e.created===void 0?``:new Date(e.created).toISOString()},reason:{title:`Reason`,width:260,grow:!0,value:e=>e.reason,cell:e=>R`<span class="dim" title=${e.reason}>${e.reason}</span>`,text:e=>e.reason},note:{title:`Note`,width:220,grow:!0,value:e=>e.note,order:`note`},tags:{title:`Tags`,width:140,value:e=>e.tags.join(` `),cell:e=>e.tags.map(e=>R`<span class="tag" key=${e}>${e}</span>`),text:e=>e.tags.join(` `)}},ed=[`id`,`state`,`name`,`user`,`progress`,`test.accuracy`,`train.loss`,`took`,`created`],td=Object.entries($u).map(([e,{title:t}])=>({key:e,title:t}));function nd(e,t){if($u[e])return rd({key:e,...$u[e]});if(e.startsWith(`best:`)){let t=e.slice(5);return rd({key:e,title:`best ${t}`,width:112,right:!0,value:e=>Zu.valueOf(e,t)??NaN,cell:e=>R`<${Zu} row=${e} metric=${t} />`})}return(t.has(e)||/^(test|train)\./.test(e))&&(t.has(e)||!/^train\.(epochs|global_batch|seed|replicas|precision)/.test(e))?rd({key:e,title:e,width:Math.max(92,32+e.length*7),right:!0,order:/^(test|train)\./.test(e)?e:void 0,value:t=>Qt(t.metrics[e]),cell:t=>t.metrics[e]===void 0?``:$t(e,t.metrics[e])}):rd({key:e,title:e.split(`.`).slice(-1)[0],hint:e,width:96,right:!0,order:e,value:t=>cr(t)[e],cell:t=>{let n=cr(t)[e];return typeof n==`number`?B(n):Vn(n)},text:t=>Vn(cr(t)[e])})}function rd(e){let t=e.cell??(t=>String(e.value(t)??``)),n=e.text??((t,n)=>{let r=e.value(t,n);return typeof r==`number`&&Number.isNaN(r)?``:r});return{...e,cell:t,text:n}}function id(e,t,n){let r=t?-1:1;return(t,i)=>{let a=e.value(t,n),o=e.value(i,n),s=a!==void 0&&a!==``&&!Number.isNaN(a);return s===(o!==void 0&&o!==``&&!Number.isNaN(o))?s&&a!==o?typeof a==`number`&&typeof o==`number`?(a-o)*r:String(a).localeCompare(String(o),`en`,{numeric:!0})*r:i.id-t.id:s?-1:1}}var ad=200,od=e=>R`<${Qn} label="Columns" align="right"><${sd} ...${e} /></${Qn}>`;function sd({chosen:e,metrics:t,rows:n}){let[r,i]=P(``),a=new Map;for(let e of n.slice(0,ad))for(let[t,n]of Object.entries(cr(e))){if(t===`name`||t.startsWith(`tags`))continue;let e=JSON.stringify(n);a.has(t)?a.get(t)!==e&&a.set(t,null):a.set(t,e)}let o=[...a].filter(([,e])=>e===null).map(([e])=>e).sort(),s=[...a].filter(([,e])=>e!==null).map(([e])=>e).sort(),c=[...t].sort(),l=[[`Run`,td.map(({key:e,title:t})=>[e,t])],[`Last value`,c.map(e=>[e,e])],[`Best value`,c.map(e=>[`best:${e}`,e])],[`Spec, differs`,o.map(e=>[e,e])],[`Spec, same in all`,s.map(e=>[e,e])]],u=t=>{let n=e.includes(t)?e.filter(e=>e!==t):[...e,t];G({cols:n.join(`,`)===ed.join(`,`)?``:n.join(`,`)})},d=e=>e.toLowerCase().includes(r.toLowerCase());return R`<div class="choices">
<input
class="input"
type="search"
placeholder="Find a column"
aria-label="Find a column"
value=${r}
onInput=${e=>i(e.target.value)}
/>
<div class="choices-list" tabindex="0" role="group" aria-label="Columns">
${l.map(([t,n])=>{let r=n.filter(([,e])=>d(e));return r.length>0&&R`<fieldset key=${t}>
<legend>${t}</legend>
${r.map(([t,n])=>R`<label class="check" key=${t}>
<input type="checkbox" checked=${e.includes(t)} onChange=${()=>u(t)} />
${n}</label
>`)}
</fieldset>`})}
</div>
<button type="button" class="button button-quiet" onClick=${()=>G({cols:``})}>Usual columns</button>
</div>`}var cd=100,ld=1e3,ud=2500,dd=class{rows=L([]);total=L(void 0);isLoading=L(!0);error=L(null);#e=null;#t=new Map;#n=null;#r=null;#i=0;#a=null;open(e){JSON.stringify(e)!==JSON.stringify(this.#e)&&(this.#e=e,this.#s(!0))}close(){this.#r?.abort(),this.#n?.(),clearTimeout(this.#a),this.#e=null}reload(){this.#e&&this.#s(!1)}#o(e,t){let{where:n,states:r,user:i,orderBy:a}=this.#e,o={page_size:t};return e?o.page_token=e:o.count_more=!0,n&&(o.where=n),r?.length&&(o.states=r),i&&(o.user=i),a&&(o.order_by=a),o}async#s(e){this.#r?.abort();let t=this.#r=new AbortController;this.error.value=null,this.isLoading.value=!0;try{let n=new Map,r=``,i=cd;do{let a=await bn(`JobService/ListJobs`,this.#o(r,i),{signal:t.signal});if(t.signal.aborted)return;for(let e of a.jobs??[])n.set(e.name,or(e));r===``&&(this.total.value=(a.jobs?.length??0)+Number(a.more_jobs??0),this.#c(a.jobs??[])),r=a.next_page_token??``,i=ld,(e||r===``||n.size>=1e4)&&(this.#t=new Map(n),this.#d())}while(r!==``&&n.size<1e4);this.isLoading.value=!1}catch(n){if(t.signal.aborted)return;this.isLoading.value=!1,this.error.value=n,e&&!vn(n)&&(this.#t.clear(),this.#d())}}#c(e){this.#n?.();let t=e.reduce((e,t)=>Math.max(e,Number(t.etag??0)),0);this.#n=hl(`JobService/WatchJobs`,t>0?{start_revision:String(t)}:{},{onMessage:e=>this.#l(e),onError:e=>{this.error.value=e}})}#l({job:e,deleted:t}){if(!e)return;let{where:n,states:r,user:i}=this.#e??{},a=this.#t.has(e.name);if(t)a&&(this.#t.delete(e.name),this.total.value!==void 0&&--this.total.value);else if(a&&!r?.length)this.#t.set(e.name,or(e)),n&&this.#u();else{let t=(!i||e.user===i)&&(!r?.length||r.includes(e.state));n&&t?this.#u():t?(!a&&this.total.value!==void 0&&(this.total.value+=1),this.#t.set(e.name,or(e))):a&&(this.#t.delete(e.name),this.total.value!==void 0&&--this.total.value)}this.#i===0&&(this.#i=setTimeout(()=>this.#d(),120))}#u(){this.#a||=setTimeout(()=>{this.#a=null,this.reload()},ud)}#d(){clearTimeout(this.#i),this.#i=0,this.rows.value=[...this.#t.values()]}};function fd(e){let t=e.trim();return t===``?``:/[=<>~]|^not\s/.test(t)?t:t.split(/\s+/).map(e=>{let t=pd(e);return/^#?\d+$/.test(e)?`(id = ${e.replace(`#`,``)} or name ~ ${t})`:`(name ~ ${t} or user = ${t} or note ~ ${t} or tag = ${t} or model = ${t})`}).join(` and `)}var pd=e=>`'${e.replaceAll(`'`,``)}'`,md=30,hd=32;function gd({rows:e,columns:t,sort:n,selected:r,cursor:i,isLoading:a,onToggle:o,onCursor:s,onSelect:c}){let l=De(null),{from:u,to:d}=Gn(l,e.length,md),f=De(!0);I(()=>{f.current?f.current=!1:Kn(l.current,i,md,hd)},[i]);let p=jt.value,m=e.length>0&&e.length<=64&&e.every(({id:e})=>r.has(String(e)));return R`<div class="table-scroll" ref=${l} tabindex="0" role="region" aria-label="Runs">
<table class="table run-table" aria-rowcount=${e.length+1} aria-busy=${a}>
<colgroup>
<col style=${{width:`34px`}} />
${t.map(e=>R`<col
key=${e.key}
style=${{width:e.grow?void 0:`${e.width}px`,minWidth:`${e.width}px`}}
/>`)}
</colgroup>
<thead>
<tr aria-rowindex="1">
<th scope="col" class="pick">
<input
type="checkbox"
aria-label="Select all runs shown"
checked=${m}
disabled=${e.length===0||e.length>64}
onChange=${()=>c(m?[]:e)}
/>
</th>
${t.map(e=>{let t=n.replace(/^-/,``)===e.key,r=n.startsWith(`-`),i=t?r?e.key:`-${e.key}`:_d(e);return R`<th
key=${e.key}
scope="col"
class=${z(e.right&&`right`,t&&`sorted`)}
aria-sort=${t?r?`descending`:`ascending`:`none`}
>
<button
type="button"
class="sort"
title=${e.hint??e.title}
onClick=${()=>G({sort:i===`-id`?``:i})}
>
<span class="sort-title">${e.title}</span
><span class="sort-mark" aria-hidden="true">${t?r?`↓`:`↑`:``}</span>
</button>
</th>`})}
</tr>
</thead>
<tbody>
${u>0&&R`<tr aria-hidden="true" key="above">
<td colspan=${t.length+1} class="gap" style=${{height:`${u*md}px`}}></td>
</tr>`}
${e.slice(u,d).map((e,n)=>R` <tr
key=${e.name}
aria-rowindex=${u+n+2}
data-job=${e.id}
class=${z(`row-${on(e.state)}`,u+n===i&&`cursor`,r.has(String(e.id))&&`picked`)}
onPointerDown=${()=>s(u+n)}
>
<td class="pick">
<input
type="checkbox"
aria-label=${`Select run ${e.id}`}
checked=${r.has(String(e.id))}
onChange=${()=>o(e)}
/>
</td>
${t.map(t=>R`<td key=${t.key} class=${z(t.right&&`right`)}>
${t.cell(e,p)}
</td>`)}
</tr>`)}
${d<e.length&&R`<tr aria-hidden="true" key="below">
<td
colspan=${t.length+1}
class="gap"
style=${{height:`${(e.length-d)*md}px`}}
></td>
</tr>`}
</tbody>
</table>
${a&&e.length===0&&R`<div class="loading">Loading runs</div>`}
</div>`}function _d(e){return!e.right||/loss|error|perplexity/.test(e.key)?e.key:`-${e.key}`}var vd=new dd,yd=[[``,`All`],[`running`,`Running`,[`JOB_STATE_RUNNING`,`JOB_STATE_STARTING`,`JOB_STATE_STOPPING`]],[`queued`,`Queued`,[`JOB_STATE_QUEUED`,`JOB_STATE_SUSPENDED`]],[`failed`,`Failed`,[`JOB_STATE_FAILED`]],[`succeeded`,`Succeeded`,[`JOB_STATE_SUCCEEDED`]],[`cancelled`,`Cancelled`,[`JOB_STATE_CANCELLED`]]];function bd(){let e=W(`state`),t=W(`user`),n=fd(W(`q`)),r=pn(W(`cols`)).length?pn(W(`cols`)):ed,i=W(`sort`)||`-id`,a=new Set(pn(W(`sel`))),o=vd.rows.value,s=yt(()=>{let e=new Set;for(let t of vd.rows.value.slice(0,500))for(let n of Object.keys(t.metrics))e.add(n);return e}).value,c=Oe(()=>r.map(e=>nd(e,s)),[r.join(),s]),l=nd(i.replace(/^-/,``),s),u=i.startsWith(`-`),d=i===`-id`||!l.order?``:`${l.order}${u?` desc`:``}`,f=yd.find(([t])=>t===e)?.[2]??[];I(()=>{vd.open({where:n,states:f,user:t,orderBy:d})},[n,e,t,d]),I(()=>()=>vd.close(),[]),I(()=>{At.value>0&&vd.reload()},[At.value]);let p=Oe(()=>o.slice().sort(id(l,u,Date.now())),[o,i,s]),[m,h]=P(0),g=Math.min(m,Math.max(0,p.length-1)),_=De(null),[v,y]=P(!1),b=e=>G({sel:[...e].join(`,`)}),x=e=>{let t=new Set(pn(W(`sel`)));t.delete(String(e.id))||t.add(String(e.id)),b(t)},S=()=>a.size>0&&U(`/compare?jobs=${[...a].join(`,`)}`),C=p[g];Ut([{key:`j`,does:`next run`,action:()=>h(Math.min(g+1,p.length-1))},{key:`k`,does:`run before`,action:()=>h(Math.max(g-1,0))},{key:`Enter`,does:`open the run`,action:()=>C&&U(mn(C.name))},{key:`x`,does:`select the run`,action:()=>C&&x(C)},{key:`c`,does:`compare the selected runs`,action:S},{key:`/`,does:`filter`,action:()=>_.current?.focus()}]);let w=p.filter(e=>a.has(String(e.id))).filter(e=>sn(e.state)&&Mn(e.user));return R`<main class="view view-fill" id="main">
<div class="toolbar">
<${Cd} input=${_} error=${vd.error.value} />
<div class="chips" role="group" aria-label="State">
${yd.map(([t,n])=>R` <button
type="button"
key=${t}
class=${z(`chip`,e===t&&`chip-on`)}
aria-pressed=${e===t}
onClick=${()=>G({state:t})}
>
${n}
</button>`)}
</div>
<label class="check"><input type="checkbox" checked=${t!==``}
onChange=${e=>G({user:e.target.checked?Cn.value?.user??``:``})} /> Mine</label>
<span class="spacer"></span>
<span class="dim num" aria-live="polite">${xd(p.length)}</span>
<${od} chosen=${r} metrics=${s} rows=${p} />
<${Qn} label="Save" align="right">
<button type="button" class="menu-item" data-close onClick=${()=>er(`runs.csv`,Br(c.map(({key:e})=>e),p.map(e=>c.map(({text:t})=>t(e,jt.value)))),`text/csv`)}>Table as CSV</button>
<button type="button" class="menu-item" data-close
onClick=${()=>er(`runs.json`,JSON.stringify(p.map(Sd),null,1),`application/json`)}>
Table as JSON</button>
</${Qn}>
</div>
${a.size>0&&R`<div class="selection-bar" role="region" aria-label="Selected runs">
<span>${H(a.size,`run`)} selected</span>
<button type="button" class="button button-primary" onClick=${S}>Compare</button>
${w.length>0&&R`<button type="button" class="button button-danger" onClick=${()=>y(!0)}>
Cancel ${w.length}…
</button>`}
<button type="button" class="button button-quiet" onClick=${()=>b([])}>Clear</button>
</div>`}
${v&&R`<${$n}
title=${`Cancel ${H(w.length,`run`)}?`}
text="They stop for good and cannot be resumed. What they have written stays."
action="Cancel the runs"
kind="button-danger"
onNo=${()=>y(!1)}
onYes=${async()=>{await bn(`JobService/CancelJobs`,{names:w.map(({name:e})=>e),reason:`from the dashboard`}),y(!1),b([])}}
/>`}
${p.length===0&&!vd.isLoading.value?R`<${wd} isFiltered=${!!(n||e||t)} error=${vd.error.value} />`:R`<${gd}
rows=${p}
columns=${c}
sort=${i}
selected=${a}
cursor=${g}
isLoading=${vd.isLoading.value}
onToggle=${x}
onCursor=${h}
onSelect=${e=>b(e.map(({id:e})=>e))}
/>`}
</main>`}function xd(e){let t=vd.total.value;return vd.isLoading.value&&e===0?`loading`:t!==void 0&&t>e?e>=1e4?`${B(e)} of ${B(t)} runs; filter for the others`:`${B(e)} of ${B(t)} runs`:H(e,`run`)}var Sd=({name:e,title:t,state:n,user:r,project:i,step:a,totalSteps:o,metrics:s,tags:c,note:l,spec:u})=>({name:e,title:t,state:n,user:r,project:i,step:a,total_steps:o,final_metrics:s,tags:c,note:l,resolved_spec:u});function Cd({input:e,error:t}){let[n,r]=P(W(`q`)),i=W(`q`);I(()=>r(i),[i]),qn(n,250,e=>{e!==W(`q`)&&G({q:e})});let a=t?.status===400;return R`<div class="filter">
<input
ref=${e}
type="search"
class=${z(`input`,a&&`input-wrong`)}
value=${n}
maxlength="900"
placeholder="Filter: words, or test.accuracy > 0.9 and model = mlp"
aria-label="Filter runs"
spellcheck="false"
onInput=${e=>r(e.target.value)}
aria-invalid=${a}
/>
${a&&R`<p class="filter-error" role="alert">${xn(t)}</p>`}
</div>`}function wd({isFiltered:e,error:t}){return t?R`<${Y} title="The list could not be loaded">${xn(t)}</${Y}>`:e?R`<${Y} title="No run matches">
<button type="button" class="button" onClick=${()=>G({q:``,state:``,user:``})}>
Show all runs</button></${Y}>`:R`<${Y} title="No runs yet">Submit one from a terminal:
<pre class="command">trainyard submit jobs/mlp-glyphs.yaml</pre></${Y}>`}function Td(e,t,n){let r=/^\s*(log|uniform|int|log_int)\s*\(([^)]*)\)/.exec(t??``);if(r){let[t,n]=r[2].split(`,`).map(Number);return{path:e,...Dd(t,n,r[1].startsWith(`log`))}}let i=[...new Set(n.filter(e=>e!==void 0))];i.map(Number).every(e=>!Number.isNaN(e))?i.sort((e,t)=>Number(e)-Number(t)):i.sort();let a=e=>i.length<2?.5:e/(i.length-1);return{path:e,place:e=>i.includes(e)?a(i.indexOf(e)):void 0,ticks:i.slice(0,12).map((e,t)=>({at:a(t),text:String(e).replace(/^"|"$/g,``)}))}}function Ed(e,t){let n=e.filter(Number.isFinite);if(n.length===0)return{place:()=>void 0,ticks:[]};let r=Math.min(...n),i=Math.max(...n);return Dd(r,i===r?r+1e-9:i,!1,t)}function Dd(e,t,n,r=Od){let i=e=>n?Math.log10(e):e,a=n=>{let r=Number(n);if(n!==void 0&&!Number.isNaN(r)&&Number.isFinite(r))return t===e?.5:Math.min(1,Math.max(0,(i(r)-i(e))/(i(t)-i(e))))},o=[];if(n&&Math.log10(t/e)>=1.5)for(let n=Math.ceil(Math.log10(e)-1e-9);n<=Math.log10(t)+1e-9;++n)o.push({at:a(10**n),text:r(10**n)});else for(let i of[0,.5,1]){let a=n?e*(t/e)**i:e+(t-e)*i;o.push({at:i,text:r(a)})}return{place:a,ticks:o}}var Od=e=>e!==0&&(Math.abs(e)<.001||Math.abs(e)>=1e5)?e.toExponential().replace(`e+`,`e`):String(Number(e.toPrecision(3)));function kd(e,t,n){let r=t.filter(Number.isFinite).sort((e,t)=>e-t);if(!Number.isFinite(e)||r.length===0)return 0;if(r.length===1)return 1;let i=r.indexOf(e)/(r.length-1);return n?i:1-i}function Ad({rungs:e,trials:t,objective:n,isLarge:r,marked:i,onMark:a}){let o=Ed(t.flatMap(({reports:e})=>(e??[]).map(({value:e})=>Number(e??0))),e=>$t(n,e)),s=e=>{let t=o.place(e)??0;return`${1+(r?t:1-t)*98}%`};return R`<section class="panel" aria-label="Rungs">
<div class="panel-head">
<h2>Rungs</h2>
<span class="dim">each dot is a trial, better to the right; filled ones went on</span>
</div>
<ul class="ladder">
${e.map((r,o)=>{let c=t.flatMap(e=>(e.reports??[]).filter(e=>(e.rung??0)===o).map(t=>({trial:e,value:Number(t.value??0),wentOn:e.rung>o}))),l=c.filter(({wentOn:e})=>e).length,u=o===e.length-1;return{html:R`<li key=${o} class="rung">
<div class="rung-label">
<strong>${u?`whole training`:`${jd(r)} of the training`}</strong>
<span class="dim">${H(c.length,`trial`)}${u?``:`, ${l} went on`}</span>
</div>
<svg class="rung-picture" role="img" aria-label=${`rung ${o}: ${c.length} trials, ${l} went on`}>
<line class="axis-line" x1="0" x2="100%" y1="50%" y2="50%" />
${c.map(({trial:e,value:t,wentOn:r})=>R`<circle
key=${e.index}
cx=${s(t)}
cy="50%"
r=${i===e.index?8:5.5}
class=${z(`rung-dot`,(r||u)&&`rung-dot-on`,i===e.index&&`rung-dot-marked`)}
onMouseEnter=${()=>a(e.index)}
onMouseLeave=${()=>a(null)}
><title>trial ${e.index}: ${$t(n,t)}</title></circle
>`)}
</svg>
</li>`,rung:o}}).toReversed().map(({html:e})=>e)}
</ul>
</section>`}function jd(e){let t=Math.round(1/e);return Math.abs(1/t-e)<1e-6?`1/${t}`:`${(e*100).toFixed(0)}%`}var Md=[`fill`,`stroke`,`stroke-width`,`stroke-opacity`,`opacity`,`font`,`font-size`,`font-family`,`font-weight`];async function Nd(e,t){let n=e.cloneNode(!0),r=e.querySelectorAll(`*`);n.querySelectorAll(`*`).forEach((e,t)=>{let n=getComputedStyle(r[t]);for(let t of Md)e.setAttribute(t,n.getPropertyValue(t))});let{width:i,height:a}=e.viewBox.baseVal;n.setAttribute(`width`,i),n.setAttribute(`height`,a);let o=new Image;o.src=`data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(n))}`,await o.decode();let s=document.createElement(`canvas`);s.width=i*2,s.height=a*2;let c=s.getContext(`2d`);c.fillStyle=Rr(`--surface`),c.fillRect(0,0,s.width,s.height),c.drawImage(o,0,0,s.width,s.height),s.toBlob(e=>e&&er(t,e),`image/png`)}var Pd=1200,Fd=300,Id=30,Ld=70;function Rd({sweep:e,trials:t,paths:n,short:r,objective:i,isLarge:a,marked:o,onMark:s,file:c}){let l=De(null),u=t.map(({value:e})=>e===void 0?NaN:Number(e)),d=[...n.map(n=>({title:r[n],...Td(n,e.spec.sweep.parameters[n],t.map(e=>e.values?.[n])),of:e=>e.values?.[n]})),{title:i,...Ed(u,e=>$t(i,e)),of:e=>e.value}],f=e=>Ld+e*1060/Math.max(1,d.length-1),p=e=>284-e*254,m=t.map((e,t)=>({trial:e,points:d.map((t,n)=>[f(n),t.place(t.of(e))]).filter(([,e])=>e!==void 0),good:kd(u[t],u,a)})).filter(({points:e})=>e.length>1).sort((e,t)=>(e.trial.index===o)-(t.trial.index===o)||e.good-t.good),h=e=>e.map(([t,n],r)=>{if(r===0)return`M${t} ${p(n).toFixed(1)}`;let[i,a]=e[r-1],o=(i+t)/2;return`C${o} ${p(a).toFixed(1)} ${o} ${p(n).toFixed(1)} ${t} ${p(n).toFixed(1)}`}).join(``),g=()=>[[`trial`,...n,i,`step`,`job`],t.map(e=>[e.index,...n.map(t=>e.values?.[t]),e.value,e.step,e.job])],_=e=>{let t=n.map(t=>`${r[t]} ${e.values?.[t]}`).join(`, `),a=e.value===void 0?`–`:$t(i,e.value);return`trial ${e.index}: ${t}; ${i} ${a}`},v=t.find(({index:e})=>e===o);return R`<figure class="panel" aria-label="All trials">
<figcaption class="panel-head"><h2>All trials</h2>
<span class="dim">${v?_(v):`blue lines are the good trials, orange ones the bad; click one to open its job`}</span><span class="spacer"></span>
<${Qn} label="⋯" title="Save all trials" kind="button button-quiet button-small" align="right">
<button type="button" class="menu-item" data-close
onClick=${()=>er(`${c}.csv`,Br(...g()),`text/csv`)}>Trials as CSV</button>
<button type="button" class="menu-item" data-close
onClick=${()=>er(`${c}.json`,JSON.stringify(t,null,1),`application/json`)}
>Trials as JSON</button>
<button type="button" class="menu-item" data-close
onClick=${()=>Nd(l.current,`${c}.png`)}>Picture as PNG</button>
</${Qn}></figcaption>
<div class="parallel-scroll" tabindex="0" role="group" aria-label="Picture of all trials"><svg ref=${l}
class="parallel" viewBox=${`0 0 ${Pd} ${Fd}`} role="img"
aria-label=${`${t.length} trials over ${n.length} parameters; the table below has their values`}>
${m.map(({trial:e,points:t,good:n})=>R`<path
key=${e.index}
d=${h(t)}
class=${z(`trial-line`,n>=.75?`trial-good`:n>=.4?`trial-middle`:`trial-bad`,o===e.index&&`trial-line-marked`,o!==null&&o!==e.index&&`trial-line-behind`)}
onMouseEnter=${()=>s(e.index)}
onMouseLeave=${()=>s(null)}
onClick=${()=>e.job&&U(`/${e.job}`)}
/>`)}
${d.map((e,t)=>R`<g key=${e.title} transform=${`translate(${f(t)} 0)`}>
<line class="axis-line" y1=${Id} y2=${284} />
<text class="axis-title" y="14" text-anchor="middle">${e.title}</text>
${e.ticks.map(({at:e,text:n})=>R`<g key=${n} transform=${`translate(0 ${p(e)})`}>
<line class="axis-line" x1="-3" x2="3" /><text
class="axis-tick"
x=${t===d.length-1?8:-8}
y="4"
text-anchor=${t===d.length-1?`start`:`end`}
>${n}</text
></g
>`)}</g
>`)}
</svg></div></figure>`}var zd=e=>e.spec?.sweep?.maximize??e.spec?.sweep?.minimize??``;function Bd({state:e}){let t=an(e,`SWEEP_STATE_`);return R`<span class=${`state state-${t===`stopped`?`suspended`:t}`}>${t}</span>`}function Vd(){let{data:e,error:t}=q(`SweepService/ListSweeps`,{page_size:500},{everyMs:4e3}),n=e?.sweeps??[];return R`<main class="view" id="main">
<div class="view-head"><h1>Sweeps</h1></div>
${t&&!e&&R`<${Y} title="Sweeps cannot be shown">${xn(t)}</${Y}>`}
${e&&n.length===0&&R`<${Y} title="No sweeps yet">Begin one from a terminal:
<pre class="command">trainyard sweep run jobs/sweep-fashion-mnist.yaml</pre></${Y}>`}
${n.length>0&&R`<section class="panel scroll-x" aria-label="Sweeps">
<table class="table">
<thead>
<tr>
<th scope="col" class="right">#</th>
<th scope="col">State</th>
<th scope="col">Name</th>
<th scope="col">Owner</th>
<th scope="col">Search</th>
<th scope="col">Objective</th>
<th scope="col" class="right">Best</th>
<th scope="col">Best job</th>
<th scope="col" class="right">Trials</th>
<th scope="col" class="right">Device time</th>
<th scope="col" class="right">Began</th>
</tr>
</thead>
<tbody>
${n.map(e=>{let t=zd(e),n=e.trials?.[0];return R`<tr key=${e.name}><td class="right">${V(e.name)}</td><td>
<${Bd} state=${e.state} /></td>
<td><${K} class="row-link" href=${`/sweeps/${V(e.name)}`}>${e.title}</${K}></td>
<td>${e.user}</td>
<td>${an(e.spec?.sweep?.search,`SWEEP_SEARCH_`)}</td>
<td>${e.spec?.sweep?.minimize?`least`:`most`} ${t}</td>
<td class="right">${(e.best_trial??0)<0?`–`:$t(t,e.best_value??0)}</td>
<td>${n?.job&&R`<${K} href=${`/${n.job}`}>${V(n.job)}</${K}>`}</td>
<td class="right">${B(e.trials_ended??0)} of ${B(e.trials_total??0)}</td>
<td class="right">${qt(Jt(e.device_time))}</td><td
class="right nowrap">${Xt(Yt(e.create_time),jt.value)}</td></tr>`})}
</tbody>
</table>
</section>`}
</main>`}var Hd={active:`running`,paused:`suspended`,stopped:`cancelled`,succeeded:`succeeded`,failed:`failed`};function Ud({id:e}){let t=`sweeps/${e}`,[n,r]=P(!1),{data:i,error:a,reload:o}=q(`SweepService/GetSweep`,{name:t,with_decisions:!0},{everyMs:n?void 0:2500}),[s,c]=P(null),[l,u]=P(null),d=Oe(()=>(i?.trials??[]).map(e=>({index:0,rung:0,...e})),[i]);if(!i)return R`<main class="view" id="main">
${a?R`<${Y} title=${`${t} cannot be shown`}>${xn(a)}</${Y}>`:R`<div class="loading">Loading ${t}</div>`}
</main>`;let f=i.state===`SWEEP_STATE_RUNNING`;n===f&&r(!f);let p=zd(i),m=!!i.spec?.sweep?.maximize,h=d.find(({index:e})=>e===(i.best_trial??0)&&(i.best_trial??0)>=0),g=Object.keys(i.spec?.sweep?.parameters??{}).sort(),_=El(g),v=d.filter(({job:e})=>e).sort(Wd(m)).slice(0,10).map(({job:e})=>V(e)),y=Mn(i.user);return R`<main class="view" id="main">
<p class="crumbs"><${K} href="/sweeps">Sweeps</${K}> / ${e}</p>
<div class="view-head"><h1>${i.title}</h1><${Bd} state=${i.state} /><span
class="dim">${i.reason}</span>
<span class="spacer"></span>
${v.length>1&&R`<${K} class="button" href=${`/compare?jobs=${v.join(`,`)}`}>Compare the best ${v.length}</${K}>`}
<${K} class="button" href=${`/?q=${encodeURIComponent(`sweep = ${e}`)}`}>Its runs</${K}>
${f&&R`<button type="button" class="button" disabled=${!y} onClick=${()=>u(`stop`)}>Stop…</button>
<button type="button" class="button button-danger" disabled=${!y} onClick=${()=>u(`cancel`)}>
Cancel…
</button>`}
${i.state===`SWEEP_STATE_STOPPED`&&R`<button type="button" class="button" disabled=${!y}
onClick=${()=>u(`resume`)}>Resume…</button>`}
${!f&&d.some(({state:e})=>e===`TRIAL_STATE_FAILED`)&&R`<button type="button" class="button" disabled=${!y} onClick=${()=>u(`retry`)}>
Run failed trials again…
</button>`}</div>
${l&&R`<${Jd}
action=${l}
sweep=${i}
onEnd=${()=>{u(null),o()}}
/>`}
${(i.warnings??[]).map(e=>R`<p class="warn" key=${e}>${e}</p>`)}
<div class="stack">
<section class="panel panel-body" aria-label="Facts"><dl class="facts">
<div class="fact-result"><dt>best ${p}</dt>
<dd>${h?$t(p,i.best_value??0):`–`}</dd></div>
${h&&R`<div><dt>Best trial</dt><dd>${h.index}, <${K}
href=${`/${h.job}`}>job ${V(h.job)}</${K}></dd></div>`}
${h&&g.map(e=>R`<div key=${e}>
<dt title=${e}>${_[e]}</dt>
<dd>${Gd(h.values?.[e])}</dd>
</div>`)}
<div><dt>Search</dt><dd>${an(i.spec?.sweep?.search,`SWEEP_SEARCH_`)}</dd></div>
<div><dt>Trials</dt>
<dd>${B(i.trials_begun??0)} of ${B(i.trials_total??0)} begun,
${` `}${B(i.trials_ended??0)} ended</dd></div>
<div><dt>At a time</dt><dd>${B(i.concurrent??0)}</dd></div>
<div><dt>Device time</dt><dd>${qt(Jt(i.device_time))}</dd></div>
<div><dt>Owner</dt><dd>${i.user}</dd></div></dl></section>
<${Rd} sweep=${i} trials=${d} paths=${g} short=${_} objective=${p}
isLarge=${m}
marked=${s} onMark=${c} file=${`sweep-${e}`} />
${(i.rungs??[]).length>1&&R`<${Ad}
rungs=${i.rungs}
trials=${d}
objective=${p}
isLarge=${m}
marked=${s}
onMark=${c}
/>`}
<${Kd} trials=${d} paths=${g} short=${_} objective=${p} isLarge=${m} best=${h}
marked=${s}
onMark=${c} hasRungs=${(i.rungs??[]).length>1} />
<details class="panel decisions"><summary class="panel-head">
<h2>${(i.decisions??[]).length} decisions</h2></summary>
<ol class="panel-body">${(i.decisions??[]).toReversed().map(({sequence:e,time:t,text:n})=>R`<li key=${e}>
<span class="dim num"><${Zn} ms=${Yt(t)} /></span> ${n}
</li>`)}</ol></details>
</div>
</main>`}var Wd=e=>(t,n)=>{let r=t=>typeof t.value==`number`?e?-t.value:t.value:1/0;return r(t)-r(n)||t.index-n.index};function Gd(e){if(e===void 0)return`–`;let t=Number(e);return e!==``&&!Number.isNaN(t)?B(t):e.replace(/^"|"$/g,``)}function Kd({trials:e,paths:t,short:n,objective:r,isLarge:i,best:a,marked:o,onMark:s,hasRungs:c}){let l=W(`sort`),u=l.replace(/^-/,``),d=l.startsWith(`-`)?-1:1,f=e.slice().sort(u===``?Wd(i):(e,t)=>{let n=e=>u===`index`?e.index:Number(e.values?.[u]??NaN);return(n(e)-n(t))*d||e.index-t.index}),p=(e,t)=>R`<th
scope="col"
class="right"
key=${e}
aria-sort=${u===e?d>0?`ascending`:`descending`:`none`}
>
<button
type="button"
class="link head-sort"
title=${e}
onClick=${()=>G({sort:u===e&&d>0?`-${e}`:e})}
>
${t}${u===e?d>0?` ↑`:` ↓`:``}
</button>
</th>`;return R`<section class="panel scroll-x" aria-label="Trials">
<table class="table">
<thead>
<tr>
${p(`index`,`Trial`)}
<th scope="col">State</th>
<th scope="col" class="right">
<button type="button" class="link head-sort" onClick=${()=>G({sort:``})}>
${r}${u===``?i?` ↓`:` ↑`:``}
</button>
</th>
${c&&R`<th scope="col" class="right">Rung</th>`}
<th scope="col" class="right">Step</th>
${t.map(e=>p(e,n[e]))}
<th scope="col">Job</th>
</tr>
</thead>
<tbody>
${f.map(e=>{let n=an(e.state,`TRIAL_STATE_`);return R`<tr
key=${e.index}
class=${z(o===e.index&&`trial-marked`)}
onMouseEnter=${()=>s(e.index)}
onMouseLeave=${()=>s(null)}
>
<td class="right">${e.index}${e===a&&R` <span class="tag best-tag">best</span>`}</td>
<td><span class=${`state state-${Hd[n]}`} title=${e.failure}>${n}</span></td>
<td class="right">${e.value===void 0?`–`:$t(r,e.value)}</td>
${c&&R`<td class="right">${e.rung}</td>`}
<td class="right">${B(e.step??0)}</td>
${t.map(t=>R`<td class="right mono" key=${t}>${Gd(e.values?.[t])}</td>`)}
<td>${e.job&&R`<${K} href=${`/${e.job}`}>${V(e.job)}</${K}>`}</td>
</tr>`})}
</tbody>
</table>
</section>`}var qd={stop:[`Stop the sweep?`,`No trial begins any more; those that wait or run are suspended. It can go on later.`,`Stop the sweep`,`StopSweep`,{}],cancel:[`Cancel the sweep?`,`All trials that have not ended are cancelled for good.`,`Cancel the sweep`,`StopSweep`,{cancel:!0}],resume:[`Resume the sweep?`,`Its suspended trials go on, and new ones begin.`,`Resume the sweep`,`ResumeSweep`,{}],retry:[`Run the failed trials again?`,`They run with the values that they had.`,`Run them again`,`ResumeSweep`,{retry_failed:!0}]};function Jd({action:e,sweep:t,onEnd:n}){let[r,i,a,o,s]=qd[e];return R`<${$n}
title=${r}
text=${i}
action=${a}
kind=${e===`cancel`?`button-danger`:void 0}
onNo=${n}
onYes=${async()=>{await bn(`SweepService/${o}`,{name:t.name,...s}),n()}}
/>`}var Yd=[[/^\/(?:runs|jobs)?\/?$/,()=>({view:bd,title:`Runs`,props:{key:`runs`}})],[/^\/jobs\/(\d+)\/?$/,e=>({view:Ou,title:`Job ${e}`,props:{id:e,key:`job-${e}`}})],[/^\/compare\/?$/,()=>({view:kl,title:`Compare`,props:{key:`compare`}})],[/^\/queue\/?$/,()=>({view:zu,title:`Queue`,props:{}})],[/^\/devices\/?$/,()=>({view:Au,title:`Devices`,props:{}})],[/^\/jobs\/(\d+)\/clone\/?$/,e=>({view:yr,title:`Clone ${e}`,props:{id:e,key:`clone-${e}`}})],[/^\/sweeps\/?$/,()=>({view:Vd,title:`Sweeps`,props:{}})],[/^\/sweeps\/(\d+)\/?$/,e=>({view:Ud,title:`Sweep ${e}`,props:{id:e,key:`sweep-${e}`}})],[/^\/specs\/?$/,()=>({view:nr,title:`Specs`,props:{}})],[/^\/specs\/([A-Za-z0-9_.-]+)\/?$/,e=>({view:rr,title:e,props:{name:e,key:`spec-${e}`}})],[/^\/usage\/?$/,()=>({view:ar,title:`Usage`,props:{}})]];function Xd(e){for(let[t,n]of Yd){let r=t.exec(e);if(r)return n(...r.slice(1))}return{view:Zd,title:`Not found`,props:{path:e}}}var Zd=({path:e})=>R`<main class="view" id="main">
<${Y} title="There is no such page">Nothing is at ${e}. <${K} href="/">All runs</${K}></${Y}>
</main>`,Qd=[[`/`,`Runs`,`g r`],[`/queue`,`Queue`,`g q`],[`/devices`,`Devices`,`g d`],[`/sweeps`,`Sweeps`,`g s`],[`/specs`,`Specs`,`g p`],[`/usage`,`Usage`,`g u`]];function $d(){I(()=>{Dn()},[At.value,kt.value]),Ut([...Qd.map(([e,t,n])=>({key:n,does:`go to ${t.toLowerCase()}`,action:()=>U(e)})),{key:`?`,does:`show these keys`,action:()=>{zt.value=!0}}]);let{path:e}=dn.value;if(kt.value)return R`<${nf} />`;let{view:t,props:n,title:r}=Xd(e);return ef(r),R`
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<${K} href="/" class="brand" aria-label="Trainyard, all runs">
<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">
<path class="brand-rail" d="M3 2v16M17 2v16" /><path class="brand-tie" d="M1 6h18M1 10h12M1 14h18" />
</svg><span class="brand-name">Trainyard</span></${K}>
<nav class="nav" aria-label="Views">
${Qd.map(([t,n])=>{let r=t===`/`?e===`/`||/^\/(jobs|compare)/.test(e):e.startsWith(t);return R`<${K} key=${t} href=${t} class=${z(`nav-link`,r&&`nav-here`)}
aria-current=${r?`page`:void 0}>${n}</${K}>`})}
</nav>
<span class="spacer"></span>
<${tf} />
<${Qn} kind="button button-quiet" label=${Cn.value?.user??`…`} title=${`${Cn.value?.user??``}, account`}
align="right">
<div class="account"><strong>${Cn.value?.user}</strong>
<span class="dim">${an(Cn.value?.role,`ROLE_`)}${Cn.value?.real_user?`, by ${Cn.value.real_user}`:``}</span>
<span class="dim">server ${Cn.value?.server_version}</span></div>
<button type="button" class="menu-item" data-close onClick=${()=>{zt.value=!0}}>
Keys <kbd>?</kbd></button>
<button type="button" class="menu-item" data-close onClick=${On}>Sign out</button>
</${Qn}>
</header>
${!Ot.value&&R`<div class="stale" role="status">
The server does not answer. ${` `}
${Dt.value?`What you see is of ${Zt(Dt.value).slice(11)}. `:``}The page goes on by
itself once the server is back.
</div>`}
<${t} key=${n.key??e} ...${n} />
<${Wt} />`}function ef(e){I(()=>{document.title=e===`Runs`?`Trainyard`:`${e} · Trainyard`},[e])}function tf(){let e=Ot.value;return Dt.value?R`<span class=${z(`fresh`,e?`fresh-good`:`fresh-bad`)}>
<span role="status">${e?`Live`:`Disconnected`}</span>
<span class="fresh-ago num">updated ${Xt(Dt.value,Math.max(jt.value,Dt.value))}</span></span
>`:R`<span class="fresh fresh-wait">Connecting</span>`}function nf(){return R`<main class="signed-out" id="main">
<h1>Trainyard</h1>
<p>You are not signed in here. Run this where you use Trainyard, and open the link that it prints:</p>
<pre class="command">trainyard web</pre>
<p>Or sign in with a token, which <code>trainyard tokens create</code> makes:</p>
<form class="token-form" onSubmit=${e=>{e.preventDefault(),Tn(new FormData(e.currentTarget).get(`token`))}}>
<input class="input" type="password" name="token" aria-label="Token" placeholder="tyk_…" autocomplete="off" required />
<button class="button" type="submit">Sign in</button>
</form>
${wn.value&&R`<p class="error-text" role="alert">${wn.value}</p>`}
</main>`}M(R`<${$d} />`,document.getElementById(`page`));